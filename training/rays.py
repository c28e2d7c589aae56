"""Pictures of solids by following rays: what each ray ends on, and the colour of it.

A camera is an eye and three axes; a ray goes to `F + X R + Y U` with X and Y from -1 to 1. In a
tile of the picture only those solids are tried whose surrounding balls the tile can see. The same
is done from the light, for shadows, and from below a shiny floor, for reflections.

Everything about a ray against a solid is linear in X and Y but the quadric's square, so each solid
is turned to its own measure (half size one) once a frame, and rays need sums only. No matrix
products: their short numbers on a GPU would fray the edges.

Shapes: N frames, P solids, L tiles, t x t rays a tile.
"""

import math
from dataclasses import dataclass, fields

import torch
from torch.nn import functional

NEAR, BIG = 0.05, 1e6
CELL = 256  # side of a texture
# Where the numbers of a solid are, beside its forms: see `_packed`.
FORMS, BASE, C = slice(0, 12), slice(12, 15), 15
QUAD, SLAB, BORE, FLOOR, LOOK = slice(16, 21), slice(21, 24), 24, 25, slice(26, 36)


@dataclass
class Stage:
    """What is to be seen in N frames."""

    at: torch.Tensor  # centres of solids [N, P, 3]
    into: torch.Tensor  # from the world to half sizes of one [N, P, 3, 3]
    form: torch.Tensor  # quadric, slab, bore, floor of the bore [N, P, 10]
    look: torch.Tensor  # half size, colour, corner and strength of texture, shine, slot [N, P, 10]
    reach: torch.Tensor  # radius of a ball around it, 0 where there is none [N, P]
    eye: torch.Tensor  # [N, 3]
    axes: torch.Tensor  # F, R, U [N, 3, 3]
    sun: torch.Tensor  # where the light is [N, 3]
    sun_axes: torch.Tensor
    light: torch.Tensor  # colour of sun, of shade, softness, haze [N, 8]
    place: torch.Tensor  # walls at x and z, scale and turn of the floor, mirror, bare [N, 6]
    scene: torch.Tensor  # whose textures [N]

    def part(self, some: slice) -> "Stage":
        """Some of the frames."""
        return Stage(*(getattr(self, f.name)[some] for f in fields(self)))


@dataclass
class Hit:
    """Where rays end: each [N, L, t * t, ...]."""

    ray: torch.Tensor  # [..., 3]
    far: torch.Tensor  # in lengths of the ray; `BIG` where it meets no solid
    who: torch.Tensor  # the solid, P for none
    normal: torch.Tensor  # [..., 3]
    where: torch.Tensor  # on its surface [..., 2]
    look: torch.Tensor  # [..., 10]


def looking(
    eye: torch.Tensor, target: torch.Tensor, tan: torch.Tensor, roll: torch.Tensor
) -> torch.Tensor:
    """The axes of a camera: [..., 3] and [...] -> [..., 3, 3]."""
    ahead = functional.normalize(target - eye, dim=-1)
    up = torch.stack([roll.sin(), roll.cos(), 0 * roll], -1)
    right = functional.normalize(torch.linalg.cross(ahead, up), dim=-1)
    above = torch.linalg.cross(right, ahead)
    return torch.stack([ahead, right * tan[..., None], above * tan[..., None]], -2)


def cast(stage: Stage, eye: torch.Tensor, axes: torch.Tensor, tiles: int, t: int) -> Hit:
    """What rays from an eye meet first, `tiles` x `tiles` tiles of t x t."""
    N, P = stage.reach.shape
    packed = _packed(stage, eye, axes)
    centre = (torch.arange(tiles, device=eye.device) + 0.5) * 2 / tiles - 1
    X, Y = centre.repeat(tiles), -centre.repeat_interleave(tiles)  # [L]
    # Which solid may be seen in which tile: as many pairs as there are, the only thing waited for.
    n, tile, solid = _tried(stage, eye, axes, X, Y, tiles).nonzero(as_tuple=True)
    g = packed[n, solid]
    step = ((torch.arange(t, device=eye.device) + 0.5) * 2 / t - 1) / tiles
    front, right, above = g[..., FORMS].reshape(-1, 3, 4, 1, 1).unbind(1)
    start = front + X[tile, None, None, None] * right + Y[tile, None, None, None] * above
    lines = (start + step * right - step[:, None] * above).flatten(-2)  # [pairs, 4, t * t]
    met = _met(g, lines)
    place = n * tiles**2 + tile
    index = place[:, None].expand_as(met)
    far = met.new_full((N * tiles**2, t * t), BIG).scatter_reduce_(0, index, met, "amin")
    first = torch.where((met == far[place]) & (met < BIG), solid[:, None], P)
    who = torch.full_like(far, P, dtype=torch.long).scatter_reduce_(0, index, first, "amin")
    far, who = (x.unflatten(0, (N, tiles**2)) for x in (far, who))
    frame = torch.arange(N, device=eye.device)[:, None, None]
    won = packed[frame, who.clamp(max=P - 1)]
    near = torch.where(who < P, far, 0.0)[..., None]
    dX, dY = step.repeat(t), -step.repeat_interleave(t)
    across, down = X[:, None] + dX, Y[:, None] + dY  # [L, t * t]
    F, R, U = (axes[:, None, None, k] for k in range(3))
    ray = F + across[..., None] * R + down[..., None] * U
    forms = won[..., FORMS].unflatten(-1, (3, 4))[..., :3]
    own = (
        forms[..., 0, :] + across[..., None] * forms[..., 1, :] + down[..., None] * forms[..., 2, :]
    )
    point = won[..., BASE] + near * own
    slope, where = _surface(won, point)
    # A slope in the solid's own measure, as seen along the axes, then in the world.
    seen = (forms * slope[..., None, :]).sum(-1) / (axes * axes).sum(-1)[:, None, None]
    normal = seen[..., :1] * F + seen[..., 1:2] * R + seen[..., 2:] * U
    normal = functional.normalize(normal, dim=-1)
    return Hit(ray, far, who, normal, where, won[..., LOOK])


def _packed(stage: Stage, eye: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
    """All that a ray needs to know of each solid: [N, P, 36]."""
    base = (stage.into * (eye[:, None] - stage.at)[:, :, None]).sum(3)
    forms = (stage.into[:, :, None] * axes[:, None, :, None]).sum(4)  # [N, P, 3, 3]
    square, slope, rest = stage.form[..., :3], stage.form[..., 3], stage.form[..., 4]
    b = (forms * (square * base)[:, :, None]).sum(3) + 0.5 * slope[..., None] * forms[..., 1]
    c = (square * base * base).sum(2) + slope * base[..., 1] + rest
    rows = torch.cat([forms, b[..., None]], 3).flatten(2)
    return torch.cat([rows, base, c[..., None], stage.form, stage.look], 2)


def _tried(
    stage: Stage,
    eye: torch.Tensor,
    axes: torch.Tensor,
    X: torch.Tensor,
    Y: torch.Tensor,
    tiles: int,
) -> torch.Tensor:
    """Which solids each tile may see: [N, L, P]."""
    away = stage.at - eye[:, None]
    far = away.square().sum(2).sqrt().clamp(min=1e-3)
    F, R, U = (axes[:, None, k] for k in range(3))
    ray = F + X[:, None] * R + Y[:, None] * U  # [N, L, 3]
    ray = functional.normalize(ray, dim=2)
    along = (ray[:, :, None] * (away / far[..., None])[:, None]).sum(3)  # [N, L, P]
    tan = axes[:, 1].square().sum(1).sqrt()
    room = (
        torch.asin((stage.reach / far).clamp(max=1)) + (math.sqrt(2) * tan / tiles)[:, None] + 0.002
    )
    inside = (stage.reach > far * 0.98)[:, None]
    return ((torch.acos(along.clamp(-1, 1)) < room[:, None]) | inside) & (stage.reach > 0)[:, None]


def _met(g: torch.Tensor, lines: torch.Tensor) -> torch.Tensor:
    """How far rays [pairs, 4, t * t] go until they meet a solid; `BIG` where they do not."""
    d, b = lines[..., :3, :], lines[..., 3, :]
    quad, base = g[..., QUAD, None], g[..., BASE, None]
    a = (quad[..., :3, :] * d * d).sum(1) + 1e-9
    inner = b * b - a * g[..., C, None]
    root, inverse = inner.clamp(min=0).sqrt(), 1 / a
    first, last = (-b - root) * inverse, (-b + root) * inverse
    # A cone goes on as a second one behind its tip: of a steep ray only one end counts.
    steep, down = a < 0, quad[..., 3, :] * d[..., 1, :] > 0
    no_start, no_end = steep & down, steep & ~down
    over = 1 / (d + 1e-12)
    middle, half = -base * over, g[..., SLAB, None] * over.abs()
    first = torch.maximum(first.masked_fill(no_start, -BIG), (middle - half).amax(1))
    last = torch.minimum(last.masked_fill(no_end, BIG), (middle + half).amin(1))
    # The bore: a smaller quadric that is taken out above its floor.
    hollow = inner - a * g[..., BORE, None]
    root = hollow.clamp(min=0).sqrt()
    enter = ((-b - root) * inverse).masked_fill(no_start, -BIG)
    leave = ((-b + root) * inverse).masked_fill(no_end, BIG)
    floor = (g[..., FLOOR, None] - base[..., 1, :]) * over[..., 1, :]
    rising = d[..., 1, :] > 0
    enter = torch.where(rising, torch.maximum(enter, floor), enter)
    leave = torch.where(rising, leave, torch.minimum(leave, floor))
    first = torch.where((hollow > 0) & (enter <= first) & (leave > first), leave, first)
    return torch.where((inner > 0) & (first < last) & (first > NEAR), first, BIG)


def _surface(won: torch.Tensor, point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The outward slope at points on solids, and where on the surface: [..., 3], [..., 2]."""
    quad, size = won[..., QUAD], won[..., LOOK][..., :3]
    slope = 2 * quad[..., :3] * point
    slope = slope + functional.pad(quad[..., 3:4], (1, 1))
    value = (quad[..., :3] * point * point).sum(-1) + quad[..., 3] * point[..., 1] + quad[..., 4]
    steep = (slope / size).square().sum(-1).sqrt() + 1e-6
    gaps = [value.abs() / steep, (value + won[..., BORE]).abs() / steep]
    sides = (point.abs() - won[..., SLAB]).abs() * size
    floor = (point[..., 1] - won[..., FLOOR]).abs() * size[..., 1]
    which = torch.cat([torch.stack([*gaps, floor], -1), sides], -1).argmin(-1, keepdim=True)
    axis = torch.arange(3, device=point.device)
    flat = torch.where(axis == which - 3, point.sign(), 0.0)
    flat = flat + ((which == 2) & (axis == 1))
    bent = torch.where(which == 0, slope, -slope)
    slope = torch.where(which < 2, bent, flat)
    place = point * size
    side = (slope / size).abs().argmax(-1, keepdim=True)
    u = torch.where(side == 0, place[..., 2:], place[..., :1])
    v = torch.where(side == 1, place[..., 2:], place[..., 1:2])
    return slope, torch.cat([u, v], -1)


def pictured(
    stage: Stage, paper: torch.Tensor, tiles: int, t: int, *, mirror: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Colours [N, L, t * t, 3] and solids [N, L, t * t] of frames; `paper` [N, 3, ., .]."""
    shadow = max(4, tiles * t // 32)  # half as many rays a side
    shade = cast(stage, stage.sun, stage.sun_axes, shadow, 16)
    depth = torch.stack([shade.far, shade.who.float()], 1)  # [N, 2, L, 256]
    depth = as_picture(depth, 16)
    hit = cast(stage, stage.eye, stage.axes, tiles, t)
    colour, is_floor, is_solid = _coloured(stage, stage.eye, hit, paper, depth)
    who = torch.where(is_solid, hit.who, stage.reach.shape[1])  # not what is below the floor
    if mirror:
        half = max(1, t // 2)
        turned = torch.tensor([1.0, -1.0, 1.0], device=colour.device)
        below, axes = stage.eye * turned, stage.axes * turned
        other = cast(stage, below, axes, tiles, half)
        seen, _, _ = _coloured(stage, below, other, paper, depth, floor=False)
        seen = seen.unflatten(2, (half, half))
        seen = seen.repeat_interleave(t // half, 2).repeat_interleave(t // half, 3).flatten(2, 3)
        share = stage.place[:, None, None, 4] * is_floor
        colour = colour + share[..., None] * (seen - colour)
    return colour, who


def as_picture(x: torch.Tensor, t: int) -> torch.Tensor:
    """Tiles as rows and columns: [..., L, t * t] -> [..., S, S]."""
    tiles = math.isqrt(x.shape[-2])
    x = x.unflatten(-1, (t, t)).unflatten(-3, (tiles, tiles)).transpose(-3, -2)
    return x.flatten(-4, -3).flatten(-2)


def _walls(stage: Stage, eye: torch.Tensor, ray: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How far rays go to the nearer wall, and whether it is the one across x."""
    gaps = (stage.place[:, :2] - eye[:, (0, 2)])[:, None, None] / ray[..., (0, 2)]
    gaps = torch.where((gaps > 0) & (stage.place[:, None, None, :2] > -1e3), gaps, BIG)
    return gaps.amin(-1), gaps[..., 0] < gaps[..., 1]


def _coloured(
    stage: Stage,
    eye: torch.Tensor,
    hit: Hit,
    paper: torch.Tensor,
    depth: torch.Tensor,
    *,
    floor: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The light along rays [N, L, t * t, 3], and which end on the floor, which on a solid."""
    light, place = stage.light[:, None, None], stage.place[:, None, None]
    wall, across = _walls(stage, eye, hit.ray)
    down = -eye[:, None, None, 1] / hit.ray[..., 1]
    down = torch.where((down > 0) & floor, down, BIG)
    far = torch.minimum(torch.minimum(wall, down), hit.far)
    solid, ground = (hit.far <= far) & (far < BIG), (down <= far) & (down < 1e3)
    ground &= ~solid
    point = eye[:, None, None] + far.clamp(max=1e3)[..., None] * hit.ray
    axis = torch.eye(3, device=far.device)
    normal = torch.where(
        ground[..., None], axis[1], torch.where(across[..., None], axis[0], axis[2])
    )
    normal = torch.where(solid[..., None], hit.normal, normal)
    # Floors and walls: a scale and a turn of their own.
    turned = torch.stack([place[..., 3].cos(), place[..., 3].sin()], -1)
    x, y, z = point.unbind(-1)
    on_floor = torch.stack([x * turned[..., 0] + z * turned[..., 1],
                            z * turned[..., 0] - x * turned[..., 1]], -1)  # fmt: skip
    on_wall = torch.stack([torch.where(across, z, x), y], -1)
    flat = torch.where(ground[..., None], on_floor, on_wall) * place[..., 2:3]
    look = hit.look
    where = torch.where(solid[..., None], hit.where * 1.5 + look[..., 6:7], flat)
    slot = torch.where(solid, look[..., 9], torch.where(ground, 0.0, 1.0))
    texture = _papered(paper, where, slot)
    painted = look[..., 3:6] + look[..., 7:8] * (texture - 0.5 + 0.3 * (texture - look[..., 3:6]))
    albedo = torch.where(solid[..., None], painted.clamp(0.01, 1), texture * 0.85)
    behind = _behind(paper, hit.ray)
    bare = (place[..., 5] > 0) & ground
    albedo = torch.where(bare[..., None], behind, albedo)
    towards = functional.normalize(stage.sun[:, None, None] - point, dim=-1)
    facing = (normal * towards).sum(-1).clamp(min=0)
    sees = _lit(stage, point, normal, hit.who.where(solid, -1), depth)
    lit = sees * facing
    view = -functional.normalize(hit.ray, dim=-1)
    gloss = (normal * functional.normalize(towards + view, dim=-1)).sum(-1).clamp(min=0)
    gloss = gloss ** (8 + 100 * look[..., 8]) * look[..., 8] * solid * lit
    low = 0.75 + 0.25 * (y / 0.3).clamp(0, 1) * solid + 0.15 * ~solid  # corners are darker
    ambient = light[..., 3:6] * (0.75 + 0.25 * normal[..., 1:2]) * low[..., None]
    colour = albedo * (ambient + light[..., :3] * lit[..., None]) + gloss[..., None]
    shadowed = behind * (0.45 + 0.55 * sees)[..., None]
    colour = torch.where(bare[..., None], shadowed, colour)
    haze = (1 - torch.exp(-0.03 * light[..., 7] * far.clamp(max=200)))[..., None]
    colour = colour + haze * (behind.mean((1, 2), keepdim=True) - colour) * (place[..., 5:6] == 0)
    return torch.where((far < 1e3)[..., None], colour, behind), ground, solid


def _papered(paper: torch.Tensor, where: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Textures, each mirrored again and again: [N, L, t * t, 2] -> [..., 3]."""
    wave = 1 - (where.remainder(2.0) - 1).abs()  # 0 to 1 and back
    inside = (wave * (CELL - 2) + 1) / CELL
    column, row = slot.remainder(4.0), (slot / 4).floor()
    x = (inside[..., 0] + column) / 4 * 2 - 1
    y = (inside[..., 1] + row) / 3 * 2 - 1
    return _looked_up(paper, torch.stack([x, y], -1))


def _behind(paper: torch.Tensor, ray: torch.Tensor) -> torch.Tensor:
    """The backdrop in the direction of rays: [N, L, t * t, 3]."""
    x = torch.atan2(ray[..., 0], -ray[..., 2]) / math.pi * 2
    high = torch.atan2(ray[..., 1], ray[..., (0, 2)].square().sum(-1).sqrt())
    y = (1 - ((0.55 - high / 1.5).remainder(2.0) - 1).abs()).clamp(0.01, 0.99)
    x = (x.remainder(2.0) - 1) * 0.998
    return _looked_up(paper, torch.stack([x, (2 + y) / 3 * 2 - 1], -1))


def _looked_up(paper: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    found = functional.grid_sample(paper, at, align_corners=False, padding_mode="border")
    return found.permute(0, 2, 3, 1)


def _lit(
    stage: Stage, point: torch.Tensor, normal: torch.Tensor, who: torch.Tensor, depth: torch.Tensor
) -> torch.Tensor:
    """How much of the sun points see: four looks at what the sun sees, [N, L, t * t]."""
    axes = stage.sun_axes[:, None, None]
    away = point + 0.02 * normal - stage.sun[:, None, None]
    ahead = (away * axes[..., 0, :]).sum(-1)
    tan = axes[..., 1, :].square().sum(-1)
    x = (away * axes[..., 1, :]).sum(-1) / (tan * ahead)
    y = -(away * axes[..., 2, :]).sum(-1) / (tan * ahead)
    soft = stage.light[:, None, None, 6]
    total = torch.zeros_like(ahead)
    ray = torch.arange(ahead.shape[2], device=ahead.device)
    for i in range(4):
        angle = (ray * 2.399963 + i * 1.5708) % (2 * math.pi)  # another for each ray of a tile
        far = (0.3 + 0.7 * ((ray * 0.618034 + i * 0.25) % 1.0)) * soft
        at = torch.stack([x + far * angle.cos(), y + far * angle.sin()], -1)
        found = functional.grid_sample(depth, at, "nearest", "border", align_corners=False)
        nearer = ahead - found[:, 0]
        other = (found[:, 1] != who) | (nearer > 0.3)
        total = total + ((nearer > 0.03) & other)
    inside = (x.abs() < 1) & (y.abs() < 1) & (ahead > 0)
    return 1 - total / 4 * inside
