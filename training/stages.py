"""What there is in scenes of solids: which things, where, how they move, in what light and colours.

Shapes: n scenes, T frames of each (N together), O things of PARTS solids each (P together).
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from training import things
from training.rays import CELL, Stage, looking
from training.things import FAR, NAMES, PARTS, THINGS, bank

OBJECTS = 6  # O
P = OBJECTS * PARTS
BALL, TABLE = NAMES.index("ball"), NAMES.index("table")
ROOTED = [name in ("tree", "fir", "house") for name in NAMES]
WEIGHTS = [[float(where.count(c)) for where in THINGS.values()] for c in "SRLC"]
# Lowest and highest colours of the paints: main, second, dark, skin, leaf, wood.
LOW = [[0.05] * 3, [0.1] * 3, [0.02] * 3, [0.3, 0.15, 0.1], [0.08, 0.2, 0.03], [0.2, 0.1, 0.05]]
HIGH = [[0.95] * 3, [1.0] * 3, [0.15] * 3, [0.95, 0.75, 0.65], [0.45, 0.6, 0.25], [0.75, 0.5, 0.3]]


@dataclass
class Motion:
    """Where things are and how they are turned, [n, T, O] but for the last."""

    ground: torch.Tensor  # x and z [n, T, O, 2]
    lift: torch.Tensor  # above the floor
    yaw: torch.Tensor
    pitch: torch.Tensor  # about what is so high: the middle of a ball, else the foot
    centre: torch.Tensor  # [n, 1, O]
    gait: torch.Tensor  # how far the swing of limbs has come
    way: torch.Tensor  # gone ahead
    moving: torch.Tensor  # bool [n, O]


class Stages:
    """Sets up scenes, with random numbers of its own."""

    def __init__(self, device: str, seed: int, textures: torch.Tensor | None = None) -> None:
        self.device = torch.device(device)
        self.random = torch.Generator(self.device).manual_seed(seed)
        self.textures = None if textures is None else textures.to(device)
        self.bank = bank(seed).to(device)
        lists = (LOW, HIGH, WEIGHTS, ROOTED)
        self.low, self.high, self.weights, self.rooted = (
            torch.tensor(x, device=device) for x in lists
        )

    def uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        """Numbers between two."""
        x = torch.rand(*shape, generator=self.random, device=self.device)
        return low + (high - low) * x

    def normal(self, *shape: int) -> torch.Tensor:
        """Numbers around zero."""
        return torch.randn(*shape, generator=self.random, device=self.device)

    def choose(self, count: int, *shape: int) -> torch.Tensor:
        """Whole numbers from 0 to count - 1."""
        return torch.randint(count, shape, generator=self.random, device=self.device)

    def staged(
        self, n: int, T: int
    ) -> tuple[Stage, tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor]:
        """Frames, keys of thing, group, part [n, P], pictures to paint with, what moves [n, O]."""
        u = self.uniform
        rows, kinds, twin = self.chosen(n)
        there = rows[:, :, 0, things.THERE]
        half = rows[..., things.SIZE]
        low = (rows[..., things.AT] - half).amin(2)
        extent = (rows[..., things.AT] + half).amax(2) - low  # [n, O, 3], roughly
        longest = extent.amax(2)
        scale = longest ** (u(0.0, 0.5, n, 1) - 1) * u(
            0.75, 1.3, n, OBJECTS
        )  # toys, or nearly true
        scale = torch.where(twin, scale.roll(1, 1), scale)
        on_top = (kinds[:, 0] == TABLE) & (u(0, 1, n) < 0.7)
        small = scale[:, 0] * longest[:, 0] / longest[:, 1] * 0.4
        scale[:, 1] = torch.where(on_top, small, scale[:, 1])
        shelf = (rows[:, 0, 0, 1] + rows[:, 0, 0, 4]) * scale[:, 0] * on_top  # its top's height
        motion = self.moved(kinds, twin, there, extent * scale[..., None], shelf, T)
        broad = torch.exp(0.15 * self.normal(n, OBJECTS)).clamp(0.75, 1.4)
        broad = torch.where(twin | (kinds == BALL), 1.0, broad)
        at, into, size = posed(rows, scale, broad, motion)
        form = rows[..., 9:19]
        reach = _reach(form, size) * broad.clamp(min=1)[..., None] * rows[..., things.THERE]
        look = torch.cat([size, self.painted(rows, twin)], -1)
        fixed = [x.flatten(1, 2).repeat_interleave(T, 0) for x in (form, look, reach)]
        filmed = self.filmed(motion.ground, scale * longest * there)
        which = torch.arange(n, device=self.device).repeat_interleave(T)
        numbers = [at.reshape(n * T, P, 3), into.reshape(n * T, P, 3, 3), *fixed, *filmed, which]
        number = torch.arange(OBJECTS, device=self.device).reshape(1, OBJECTS, 1)
        thing = number.expand(n, OBJECTS, PARTS) * 100
        group, part = (thing + rows[..., k] for k in (things.GROUP, things.PART))
        keys = tuple(key.flatten(1) for key in (thing, group, part))
        return Stage(*numbers), keys, self.paper(n), motion.moving

    def moved(
        self,
        kinds: torch.Tensor,
        twin: torch.Tensor,
        there: torch.Tensor,
        extent: torch.Tensor,
        shelf: torch.Tensor,
        T: int,
    ) -> Motion:
        """How things of an extent [n, O, 3] stand and move; the second may stand on a shelf [n]."""
        n, O = kinds.shape  # noqa: E741 (a shape letter)
        u, on_top, tall = self.uniform, shelf > 0, extent[..., 1]
        yaw = u(0, 6.28, n, O)
        yaw = torch.where(twin & (u(0, 1, n, 1) < 0.6), yaw.roll(1, 1), yaw)[:, None]
        time = torch.arange(T, device=self.device)[:, None]  # beside [n, 1, O]
        moving = (u(0, 1, n, O) < 0.55) & ~self.rooted[kinds]
        moving[:, :2] &= ~on_top[:, None]
        moves = moving[:, None]
        pace = (0.02 + 0.35 * u(0, 1, n, 1, O) ** 2) * torch.sign(u(-0.2, 1, n, 1, O))
        swayed = u(0.4, 1.5, n, 1, O) * torch.sin(u(0.2, 0.9, n, 1, O) * time + yaw)
        straight = pace * (time - u(0, 0.6, n, 1, O) * (T - 1))
        way = torch.where(u(0, 1, n, 1, O) < 0.3, swayed, straight) * moves
        yaw = yaw + 0.12 * u(-1, 1, n, 1, O) * moves * time
        home = self.normal(n, 1, O, 2) * u(0.2, 1.3, n, 1, 1, 1)
        ground = home + way[..., None] * torch.stack([yaw.sin(), yaw.cos()], -1)
        alone = there.clone()
        alone[:, 1] *= ~on_top
        wide = extent[:, None, :, (0, 2)] / 2
        ground = self.apart(ground, wide, yaw, alone[:, None])
        ground[:, :, 1] = torch.where(on_top[:, None, None], ground[:, :, 0], ground[:, :, 1])
        # Balls roll; some of the others fall over, some hop.
        is_ball = (kinds == BALL)[:, None]
        falls = moves & (u(0, 1, n, 1, O) < 0.15)
        tip = (0.35 * (time - u(-4, T, n, 1, O))).clamp(0, 1) ** 2 * math.pi / 2 * falls
        radius = (tall / 2).clamp(min=1e-3)[:, None]
        centre, pitch = torch.where(is_ball, radius, 0.0), torch.where(is_ball, way / radius, tip)
        hops = (u(0, 1, n, 1, O) < 0.2) * moves * u(0, 1, n, 1, O)
        lift = hops * torch.sin(u(0.2, 1.2, n, 1, O) * time + yaw).abs()
        lift = lift + tip.sin() * wide[..., 1] * ~is_ball
        lift[:, :, 1] += shelf[:, None]
        gait = way / (0.16 * extent.amax(2))[:, None] + u(0, 6.28, n, 1, O)
        gait = gait + 0.35 * time * u(0, 1, n, 1, O)
        return Motion(ground, lift, yaw.expand_as(lift), pitch, centre, gait, way, moving)

    def chosen(self, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Things of each scene [n, O, PARTS, FIELDS], which they are, and who has a twin before."""
        theme = self.weights[self.choose(len(self.weights), n)]
        mixed = self.uniform(0, 1, n, 1) < 0.2
        kinds = torch.multinomial(theme + mixed, OBJECTS, True, generator=self.random)
        variant = self.choose(self.bank.shape[1], n, OBJECTS)
        twin = self.uniform(0, 1, n, OBJECTS) < 0.25
        twin[:, :2] &= False
        twin[:, 1::2] &= False  # so that no twin is another's model
        kinds, variant = (torch.where(twin, x.roll(1, 1), x) for x in (kinds, variant))
        rows = self.bank[kinds, variant].clone()
        count = 2 + self.choose(OBJECTS - 1, n, 1)
        there = torch.arange(OBJECTS, device=self.device) < count
        rows[..., things.THERE] *= there[..., None]
        return rows, kinds, twin

    def apart(
        self, ground: torch.Tensor, wide: torch.Tensor, yaw: torch.Tensor, there: torch.Tensor
    ) -> torch.Tensor:
        """Places [n, T, O, 2] drawn together, then pushed until things touch at most."""
        for _ in range(10):
            gap = ground[:, :, :, None] - ground[:, :, None]  # [n, T, O, O, 2]
            far = _length(gap) + 1e-3
            angle = torch.atan2(gap[..., 0], gap[..., 1])
            near = []
            for turn, size in (
                (yaw[..., None], wide[..., None, :]),
                (yaw[:, :, None], wide[:, :, None]),
            ):
                sin, cos = (angle - turn).sin() / size[..., 0], (angle - turn).cos() / size[..., 1]
                near.append((sin**2 + cos**2).rsqrt())
            push = (near[0] + near[1] - far).clamp(min=0) * there[..., None] * there[:, :, None]
            push = push * ~torch.eye(OBJECTS, dtype=torch.bool, device=self.device)
            ground = ground + 0.4 * (gap / far[..., None] * push[..., None]).sum(3)
        return ground

    def painted(self, rows: torch.Tensor, twin: torch.Tensor) -> torch.Tensor:
        """Colour, corner of the texture, its strength and shine of each solid: [n, O, PARTS, 7]."""
        n, u = len(rows), self.uniform
        vivid = u(0, 1, n, OBJECTS, things.PAINTS, 1) ** 1.5
        share = u(0, 1, n, OBJECTS, things.PAINTS, 1) * (1 - vivid)
        share = share + u(0, 1, n, OBJECTS, things.PAINTS, 3) * vivid
        wild = u(0, 1, n, OBJECTS, 1, 1) < 0.15
        colours = self.low + (self.high - self.low) * share
        colours = torch.where(wild, u(0, 1, n, OBJECTS, things.PAINTS, 3), colours)
        strength = u(-0.5, 1, n, OBJECTS, things.PAINTS, 1).clamp(min=0) ** 1.5
        shine = u(-0.3, 0.7, n, OBJECTS, things.PAINTS, 1).clamp(min=0)
        corner = self.choose(4, n, OBJECTS, things.PAINTS, 1) / 4.0
        paints = torch.cat([colours, corner, strength, shine], 3)
        alike = twin & (u(0, 1, n, 1) < 0.7)
        paints = torch.where(alike[..., None, None], paints.roll(1, 1), paints)
        paint = rows[..., things.PAINT].long()[..., None]
        found = paints.gather(2, paint.expand(-1, -1, -1, 6))
        slot = torch.arange(OBJECTS, device=self.device).reshape(1, -1, 1, 1) + 2.0
        return torch.cat([found, slot.expand(n, -1, PARTS, 1)], 3)

    def filmed(self, ground: torch.Tensor, big: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Eye and axes, sun and axes, light, place: each [N, ...]."""
        u, (n, T) = self.uniform, ground.shape[:2]
        time = torch.arange(T, device=self.device)[None, :, None] / 10.0
        weight = (big > 0) * 1.0
        weight = weight / weight.sum(1, keepdim=True)
        middle = (ground[:, :1] * weight[:, None, :, None]).sum(2)  # [n, 1, 2]
        around = _length(ground[:, :1] - middle[:, :, None]) + big[:, None] * 0.6
        around = (around * (big[:, None] > 0)).amax(2)  # [n, 1]
        # Some look at one thing.
        close = u(0, 1, n, 1) < 0.35
        middle = torch.where(close[..., None], ground[:, :1, 0] * 0.8 + middle * 0.2, middle)
        around = torch.where(close, big[:, :1] * u(0.6, 1.2, n, 1), around)
        drift = self.normal(n, 1, 3) * time + 0.3 * torch.sin(
            u(1, 8, n, 1, 3) * time + u(0, 6, n, 1, 3)
        )
        drift = drift * u(0, 0.6, n, 1, 1) ** 2
        follow = (u(0, 1, n, 1, 1) < 0.4) * u(0, 1, n, 1, 1)
        middle = middle + follow * (ground[:, :, 0] - ground[:, :1, 0])
        around = around * torch.exp(0.5 * drift[..., 0])  # [n, T]
        tan = u(0.25, 0.75, n, 1)
        distance = around / tan * u(0.6, 1.1, n, 1) + big[:, :1] * 0.4
        turn = u(0.25, 1.3, n, 1) + 0.5 * drift[..., 1]
        rise = (u(0.02, 1.0, n, 1) ** 1.3 + 0.3 * drift[..., 2]).clamp(0.02, 1.4)
        target = torch.stack(
            [middle[..., 0], big[:, :1] * u(0.1, 0.5, n, 1) + 0 * turn, middle[..., 1]], 2
        )
        back = torch.stack([rise.cos() * turn.sin(), rise.sin(), rise.cos() * turn.cos()], 2)
        eye = target + distance[..., None] * back
        target = target + 0.3 * around[..., None] * self.normal(n, 1, 3) * 0.6
        target = target + 0.4 * around[..., None] * drift
        axes = looking(eye, target, tan.expand(-1, T), 0.06 * self.normal(n, 1) + 0 * turn)
        reach = around.amax(1, keepdim=True) * 1.6 + big.amax(1, keepdim=True)
        up, side = u(0.45, 1.4, n, 1), u(0, 6.28, n, 1)
        towards = torch.stack([up.cos() * side.sin(), up.sin(), up.cos() * side.cos()], 2)
        hub = torch.stack([middle[:, :1, 0], 0 * side, middle[:, :1, 1]], 2)
        sun = hub + 6 * reach[..., None] * towards
        sun_axes = looking(sun, hub, torch.full_like(side, 1 / 5), 0 * side)
        dim = u(0.25, 0.75, n, 1)
        warm = torch.tensor([0.12, 0.0, -0.15], device=self.device) * self.normal(n, 1)
        bright = torch.exp(0.25 * self.normal(n, 1))
        sunny = (1.2 - dim) * (1 + warm) * bright
        light = torch.cat(
            [sunny, dim * (1 - 0.5 * warm) * bright, u(0.0, 0.03, n, 1), u(0, 1, n, 1)], 1
        )
        edge = ground.clamp(-5, 5).amin(1) - big[..., None]  # [n, O, 2]
        edge = edge.amin(1) - u(0, 1.5, n, 2) ** 2
        outdoors = u(0, 1, n, 1) < 0.5
        edge = torch.where(outdoors, -FAR, edge)
        mirror = u(0.15, 0.6, n, 1) * (torch.arange(n, device=self.device)[:, None] % 4 == 0)
        bare = (outdoors & (u(0, 1, n, 1) < 0.35)) * 1.0
        place = torch.cat([edge, u(0.15, 1.2, n, 1), u(0, 3, n, 1), mirror * (1 - bare), bare], 1)
        return (
            *(x.expand(-1, T, *x.shape[2:]).flatten(0, 1) for x in (eye, axes, sun, sun_axes)),
            *(x.repeat_interleave(T, 0) for x in (light, place)),
        )

    def paper(self, n: int) -> torch.Tensor:
        """What surfaces are covered with and, last, what is behind: [n, 3, 3 * CELL, 4 * CELL].

        Eight textures above; below the backdrop, as wide as two of them.
        """
        u, count = self.uniform, n * 8
        vivid = u(0, 0.55, count, 1, 1, 1) ** 2
        total = u(0.15, 0.8, count, 1, 1, 1) + vivid * self.normal(count, 3, 1, 1)
        total = total.clamp(0.1, 0.9).expand(count, 3, CELL, CELL)
        for cells in (2, 4, 8, 32, 128):
            share = 0.25 * u(0, 1, count, 1, 1, 1) ** 3
            grain = self.normal(count, 1, cells, cells)
            grain = grain + vivid * self.normal(count, 3, cells, cells)
            total = total + share * functional.interpolate(grain, CELL, mode="bilinear")
        axis = torch.linspace(0, 1, CELL, device=self.device)
        turn, pace = u(0, 3.14, count, 1, 1), u(10, 90, count, 1, 1)
        along = axis * turn.cos() + axis[:, None] * turn.sin()
        across = axis[:, None] * turn.cos() - axis * turn.sin()
        one, two = (pace * along).sin(), (pace * across).sin()
        style = u(0, 1, count, 1, 1)
        pattern = torch.where(
            style < 0.2, one.sign(), torch.where(style < 0.35, (one * two).sign(), 0.0)
        )
        pattern = torch.where((style > 0.35) & (style < 0.5), (one + two > 1.2) * 1.0, pattern)
        tint = 0.2 * self.normal(count, 1, 1, 1) + vivid * 0.5 * self.normal(count, 3, 1, 1)
        drawn = total + pattern[:, None] * tint
        sky = torch.linspace(1, 0, CELL, device=self.device)[:, None] * u(-0.4, 0.6, n, 3, 1, 1)
        behind = sky + functional.interpolate(
            drawn.reshape(n, 8, 3, CELL, CELL)[:, 0], (CELL, 2 * CELL)
        )
        if self.textures is not None:
            photo = self.cropped(count, CELL, u(0.2, 1.5, count))
            is_photo = (u(0, 1, count) < 0.45).reshape(-1, 1, 1, 1)
            drawn = torch.where(is_photo, photo, drawn)
            whole = functional.interpolate(
                self.cropped(n, 2 * CELL, None), (CELL, 2 * CELL), mode="area"
            )
            behind = torch.where(u(0, 1, n, 1, 1, 1) < 0.75, whole, behind)
        cells = drawn.reshape(n, 2, 4, 3, CELL, CELL).permute(0, 3, 1, 4, 2, 5)
        cells = cells.reshape(n, 3, 2 * CELL, 4 * CELL)
        below = torch.cat([behind, behind.flip(3)], 3)
        return torch.cat([cells, below], 2).clamp(0, 1)

    def cropped(self, count: int, side: int, step: torch.Tensor | None) -> torch.Tensor:
        """Parts of photographs, or the whole of them: [count, 3, side, side]."""
        assert self.textures is not None
        h, w = self.textures.shape[2:]
        which = self.choose(len(self.textures), count)
        reach = torch.arange(side, device=self.device) / side
        zoom = torch.ones(count, device=self.device) if step is None else step / 1.6
        top, left = (self.uniform(0, 1, count) * (1 - zoom).clamp(min=0) for _ in range(2))
        ys = ((top[:, None] + zoom[:, None] * reach).clamp(0, 0.999) * h).long()[:, None, :, None]
        xs = ((left[:, None] + zoom[:, None] * reach).clamp(0, 0.999) * w).long()[:, None, None]
        colour = torch.arange(3, device=self.device)[None, :, None, None]
        return self.textures[which[:, None, None, None], colour, ys, xs].float() / 255


def _about(axis: int, angle: torch.Tensor) -> torch.Tensor:
    """A turn about x, y or z: [...] -> [..., 3, 3]."""
    cos, sin, one, no = angle.cos(), angle.sin(), torch.ones_like(angle), torch.zeros_like(angle)
    rows = {
        0: (one, no, no, no, cos, -sin, no, sin, cos),
        1: (cos, no, sin, no, one, no, -sin, no, cos),
        2: (cos, -sin, no, sin, cos, no, no, no, one),
    }[axis]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def _times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product of 3 x 3 matrices in full precision."""
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)


def posed(
    rows: torch.Tensor, scale: torch.Tensor, broad: torch.Tensor, motion: Motion
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where solids are [n, T, O, PARTS, 3], the way into them [..., 3, 3], half sizes [n, O, ., 3].

    Of rows [n, O, PARTS, FIELDS], so large and so broad [n, O].
    """
    x, y, z = rows[..., things.TURN].unbind(-1)
    still = _times(_about(1, y), _times(_about(0, x), _about(2, z)))[:, None]
    size = (rows[..., things.SIZE] * scale[..., None, None]).clamp(min=1e-4)
    phase = motion.gait[..., None] + rows[:, None, :, :, things.PHASE]
    swing = rows[:, None, :, :, things.SWING] * phase.sin()
    spin = rows[:, None, :, :, things.SPIN] * motion.way[..., None] / size[:, None, :, :, 0]
    own = _times(_about(0, swing + spin), still)
    pivot = rows[:, None, :, :, things.PIVOT]
    arm = rows[:, None, :, :, things.AT] - pivot
    wider = torch.stack([broad, torch.ones_like(broad), torch.ones_like(broad)], -1)[
        :, None, :, None
    ]
    at = (pivot + (_about(0, swing) * arm[..., None, :]).sum(-1)) * scale[:, None, :, None, None]
    at = at * wider
    rest = torch.stack([0 * motion.centre, motion.centre, 0 * motion.centre], -1).unsqueeze(3)
    whole = _times(_about(1, motion.yaw), _about(0, motion.pitch))[:, :, :, None]
    at = rest + (whole * (at - rest)[..., None, :]).sum(-1)
    at = at + torch.stack(
        [motion.ground[..., 0], motion.lift, motion.ground[..., 1]], -1
    ).unsqueeze(3)
    into = _times(whole / wider[..., None, :], own).transpose(-1, -2) / size[:, None, ..., None]
    return at, into, size


def _reach(form: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """The radius of a ball around each solid: [..., 10], [..., 3] -> [...]."""
    flat = form[..., 5:8].clamp(max=1) * size
    broad = torch.where(form[..., 0] > 0, flat[..., (0, 2)].amax(-1), _length(flat[..., (0, 2)]))
    return torch.where(form[..., 1] > 0.9, flat.amax(-1), broad.hypot(flat[..., 1]))


def _length(x: torch.Tensor) -> torch.Tensor:
    return x.square().sum(-1).sqrt()
