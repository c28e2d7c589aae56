"""Scenes of solids for ever: things beside each other, their groups and parts, at rest or moving.

What the things are made of is in `things.py`, how they are drawn in `rays.py`. A thing is whole,
a group (all wheels) or a part (one wheel); masks are the share of rays that end on it, so they are
exact, with four rays a pixel of the picture.

Shapes: n scenes, T frames of each (N together), O things of PARTS solids each (P together).
"""

import math

import torch
from torch.nn import functional

from training import things
from training.rays import CELL, Stage, as_picture, looking, pictured
from training.scenes import Film
from training.things import FAR, PARTS, THINGS, bank

OBJECTS = 6
P = OBJECTS * PARTS
SMALL = 0.002  # of the picture
NAMES = [build.__name__ for build in THINGS]
BALL, TABLE = NAMES.index("ball"), NAMES.index("table")
WEIGHTS = torch.tensor([[what.count(c) for what in THINGS.values()] for c in "SRLC"]).float()
# Lowest and highest colours of the paints: main, second, dark, skin, leaf, wood.
LOW = torch.tensor([[0.05] * 3, [0.1] * 3, [0.02] * 3, [0.3, 0.15, 0.1], [0.08, 0.2, 0.03],
                    [0.2, 0.1, 0.05]])  # fmt: skip
HIGH = torch.tensor([[0.95] * 3, [1.0] * 3, [0.15] * 3, [0.95, 0.75, 0.65], [0.45, 0.6, 0.25],
                     [0.75, 0.5, 0.3]])  # fmt: skip


class Solids:
    """Draws scenes, with random numbers of its own."""

    def __init__(self, device: str, seed: int, textures: torch.Tensor | None = None) -> None:
        self.device = torch.device(device)
        self.random = torch.Generator(self.device).manual_seed(seed)
        self.textures = None if textures is None else textures.to(device)
        self.bank = bank(seed).to(device)
        self.low, self.high, self.weights = (x.to(device) for x in (LOW, HIGH, WEIGHTS))
        self.rooted = torch.tensor([name in ("tree", "fir", "house") for name in NAMES], device=device)
        self.rays = 2**22 if self.device.type == "cuda" else 2**16  # followed at once

    def stills(
        self, n: int, side: int = 512, mask_side: int = 128
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures uint8 [n, 3, side, side]; a part, a group and the whole of each thing.

        Masks: uint8 [n, 3 * OBJECTS, mask_side, mask_side].
        """
        images, chains = self.nested(n, side, mask_side)
        return images, chains.flatten(1, 2)

    def nested(self, n: int, side: int, mask_side: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures, and a part in a group in a whole: uint8 [n, OBJECTS, 3, mask_side, mask_side].

        Empty where a thing cannot be seen.
        """
        stage, keys, paper, _ = self.staged(n, 1)
        images, cover = self.drawn(stage, paper, side, mask_side)
        area = cover.mean((2, 3))[:, :P]
        thing, group, part = ((key[:, :, None] == key[:, None]).float() for key in keys)
        of_part, of_group, of_thing = ((same * area[:, None]).sum(2) for same in (part, group, thing))
        worth = self.uniform(0, 1, n, P) + 3.0 * (of_part > SMALL / 2)
        worth = worth + (of_group > 1.15 * of_part) + 1.0 * (of_thing > 1.15 * of_group)
        best = worth.reshape(n, OBJECTS, PARTS).argmax(2)
        best = best + torch.arange(OBJECTS, device=self.device) * PARTS
        table = torch.stack([part, group, thing], 2)
        rows = table.gather(1, best[:, :, None, None].expand(-1, -1, 3, P))
        masks = torch.einsum("nkjp,npyx->nkjyx", rows, cover[:, :P])
        return images, _to_bytes(masks)

    def clips(self, B: int, T: int, objects: int, side: int, mask_side: int) -> Film:
        """Clips of things that move before a camera that moves."""
        stage, _, paper, moving = self.staged(B, T)
        images, cover = self.drawn(stage, paper, side, mask_side)
        wholes = cover[:, :P].unflatten(1, (OBJECTS, PARTS)).sum(2)
        wholes = wholes.unflatten(0, (B, T)).transpose(1, 2)  # [B, O, T, m, m]
        seen = wholes[:, :, 0].mean((2, 3)) > SMALL
        order = (self.uniform(0, 1, B, OBJECTS) + moving + 3.0 * seen).argsort(1, descending=True)
        turn = torch.arange(objects, device=self.device) % seen.sum(1, keepdim=True).clamp(min=1)
        chosen = order.gather(1, turn)[:, :, None, None, None]
        masks = wholes.gather(1, chosen.expand(-1, -1, *wholes.shape[2:]))
        known = torch.ones(B, objects, T, dtype=torch.bool, device=self.device)
        return Film(images.unflatten(0, (B, T)), _to_bytes(masks), known)

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

    # ------------------------------------------------------------------ what there is

    def staged(
        self, n: int, T: int
    ) -> tuple[Stage, tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor]:
        """Frames, keys of thing, group, part [n, P], pictures to paint with, what moves [n, O]."""
        u, O = self.uniform, OBJECTS
        rows, kinds, twin = self.chosen(n)
        there = rows[:, :, 0, things.THERE]
        half = rows[..., things.SIZE]
        low = (rows[..., things.AT] - half).amin(2)
        extent = (rows[..., things.AT] + half).amax(2) - low  # [n, O, 3], roughly
        tall, longest = extent[..., 1], extent.amax(2)
        scale = longest ** (u(0.0, 0.5, n, 1) - 1) * u(0.75, 1.3, n, O)  # toys, or nearly true
        scale = torch.where(twin, scale.roll(1, 1), scale)
        on_top = (kinds[:, 0] == TABLE) & (u(0, 1, n) < 0.7)
        scale[:, 1] = torch.where(on_top, scale[:, 0] * longest[:, 0] / longest[:, 1] * 0.4, scale[:, 1])
        yaw = u(0, 6.28, n, O)
        yaw = torch.where(twin & (u(0, 1, n, 1) < 0.6), yaw.roll(1, 1), yaw)[:, None]
        time = torch.arange(T, device=self.device)[:, None]  # beside [n, 1, O]
        moving = u(0, 1, n, O) < 0.55
        moving[:, :2] &= ~on_top[:, None]
        moving &= ~self.rooted[kinds]
        pace = (0.02 + 0.35 * u(0, 1, n, 1, O) ** 2) * torch.sign(u(-0.2, 1, n, 1, O))
        swayed = u(0.4, 1.5, n, 1, O) * torch.sin(u(0.2, 0.9, n, 1, O) * time + yaw)
        straight = pace * (time - u(0, 0.6, n, 1, O) * (T - 1))
        way = torch.where(u(0, 1, n, 1, O) < 0.3, swayed, straight) * moving[:, None]
        yaw = yaw + 0.12 * u(-1, 1, n, 1, O) * moving[:, None] * time
        home = self.normal(n, 1, O, 2) * u(0.2, 1.3, n, 1, 1, 1)
        ground = home + way[..., None] * torch.stack([yaw.sin(), yaw.cos()], -1)
        wide = extent[..., (0, 2)] * scale[..., None] / 2
        alone = there.clone()
        alone[:, 1] *= ~on_top
        ground = self.apart(ground, wide[:, None], yaw, alone[:, None])
        ground[:, :, 1] = torch.where(on_top[:, None, None], ground[:, :, 0], ground[:, :, 1])
        shelf = rows[:, 0, 0, 1] + rows[:, 0, 0, 4]
        lift = torch.zeros(n, T, O, device=self.device)
        lift[:, :, 1] = (on_top * shelf * scale[:, 0])[:, None]
        # Balls roll; some of the others fall over, some hop.
        is_ball = (kinds == BALL)[:, None]
        falls = moving[:, None] & (u(0, 1, n, 1, O) < 0.15)
        tip = (0.35 * (time - u(-4, T, n, 1, O))).clamp(0, 1) ** 2 * math.pi / 2 * falls
        centre = torch.where(is_ball, (scale * tall / 2)[:, None], 0.0)
        pitch = torch.where(is_ball, way / (scale * tall / 2)[:, None], tip)
        hops = (u(0, 1, n, 1, O) < 0.2) * moving[:, None] * u(0, 1, n, 1, O)
        lift = lift + hops * torch.sin(u(0.2, 1.2, n, 1, O) * time + yaw).abs()
        lift = lift + tip.sin() * wide[:, None, :, 1] * ~is_ball
        gait = way / (0.16 * longest * scale)[:, None] + u(0, 6.28, n, 1, O)
        gait = gait + 0.35 * time * u(0, 1, n, 1, O)
        broad = torch.exp(0.15 * self.normal(n, O)).clamp(0.75, 1.4)
        broad = torch.where(twin | is_ball[:, 0], 1.0, broad)
        at, into, size = _posed(rows, scale, broad, ground, lift, yaw, pitch, centre, gait, way)
        form = rows[..., 9:19]
        flat = form[..., 5:8].clamp(max=1) * size
        spread = torch.where(form[..., 0] > 0, flat[..., (0, 2)].amax(-1), _length(flat[..., (0, 2)]))
        reach = torch.where(form[..., 1] > 0.9, flat.amax(-1), spread.hypot(flat[..., 1]))
        look = torch.cat([size, self.painted(rows, twin)], -1)
        reach = reach * broad.clamp(min=1)[..., None]
        per_scene = (form, look, reach * rows[..., things.THERE])
        fixed = [x.flatten(1, 2).repeat_interleave(T, 0) for x in per_scene]
        big = scale * longest * there
        filmed = self.filmed(ground, big, lift)
        which = torch.arange(n, device=self.device).repeat_interleave(T)
        stage = Stage(at.reshape(n * T, P, 3), into.reshape(n * T, P, 3, 3), *fixed, *filmed, which)
        thing = torch.arange(O, device=self.device).reshape(1, O, 1).expand(n, O, PARTS) * 100
        group, part = (thing + rows[..., k] for k in (things.GROUP, things.PART))
        keys = tuple(key.flatten(1) for key in (thing, group, part))
        return stage, keys, self.paper(n), moving

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
            for turn, size in ((yaw[..., None], wide[..., None, :]), (yaw[:, :, None], wide[:, :, None])):
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

    def filmed(
        self, ground: torch.Tensor, big: torch.Tensor, lift: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Eye and axes, sun and axes, light, place: each [N, ...]."""
        u, (n, T) = self.uniform, ground.shape[:2]
        time = torch.arange(T, device=self.device)[None, :, None] / 10.0
        weight = (big > 0) * 1.0
        weight = weight / weight.sum(1, keepdim=True)
        middle = (ground[:, :1] * weight[:, None, :, None]).sum(2)  # [n, 1, 2]
        around = _length(ground[:, :1] - middle[:, :, None]) + big[:, None] * 0.6
        around = (around * (big[:, None] > 0)).amax(2)  # [n, 1]
        first = self.choose(2, n, 1) * 1.0  # some look at one thing
        close = u(0, 1, n, 1) < 0.35
        middle = torch.where(close[..., None], ground[:, :1, 0] * 0.8 + middle * 0.2, middle)
        around = torch.where(close, big[:, :1] * u(0.6, 1.2, n, 1), around)
        drift = self.normal(n, 1, 3) * time + 0.3 * torch.sin(u(1, 8, n, 1, 3) * time + u(0, 6, n, 1, 3))
        drift = drift * u(0, 0.6, n, 1, 1) ** 2
        follow = (u(0, 1, n, 1, 1) < 0.4) * u(0, 1, n, 1, 1)
        middle = middle + follow * (ground[:, :, 0] - ground[:, :1, 0])
        around = around * torch.exp(0.5 * drift[..., 0])  # [n, T]
        tan = u(0.25, 0.75, n, 1)
        distance = around / tan * u(0.6, 1.1, n, 1) + big[:, :1] * 0.4
        turn = u(0.25, 1.3, n, 1) + 0.5 * drift[..., 1]
        rise = (u(0.02, 1.0, n, 1) ** 1.3 + 0.3 * drift[..., 2]).clamp(0.02, 1.4)
        target = torch.stack([middle[..., 0], big[:, :1] * u(0.1, 0.5, n, 1) + 0 * turn, middle[..., 1]], 2)
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
        sunny = (1.25 - dim) * (1 + warm) * bright
        light = torch.cat([sunny, dim * (1 - 0.5 * warm) * bright, u(0.0, 0.03, n, 1), u(0, 1, n, 1)], 1)
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
        vivid = u(0, 0.7, count, 1, 1, 1) ** 2
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
        pattern = torch.where(style < 0.2, one.sign(), torch.where(style < 0.35, (one * two).sign(), 0.0))
        pattern = torch.where((style > 0.35) & (style < 0.5), (one + two > 1.2) * 1.0, pattern)
        tint = 0.2 * self.normal(count, 1, 1, 1) + vivid * 0.5 * self.normal(count, 3, 1, 1)
        drawn = total + pattern[:, None] * tint
        sky = torch.linspace(1, 0, CELL, device=self.device)[:, None] * u(-0.4, 0.6, n, 3, 1, 1)
        behind = sky + functional.interpolate(drawn.reshape(n, 8, 3, CELL, CELL)[:, 0], (CELL, 2 * CELL))
        if self.textures is not None:
            photo = self.cropped(count, CELL, u(0.2, 1.5, count))
            is_photo = (u(0, 1, count) < 0.45).reshape(-1, 1, 1, 1)
            drawn = torch.where(is_photo, photo, drawn)
            whole = functional.interpolate(self.cropped(n, 2 * CELL, None), (CELL, 2 * CELL), mode="area")
            behind = torch.where(u(0, 1, n, 1, 1, 1) < 0.75, whole, behind)
        cells = drawn.reshape(n, 2, 4, 3, CELL, CELL).permute(0, 3, 1, 4, 2, 5)
        cells = cells.reshape(n, 3, 2 * CELL, 4 * CELL)
        below = torch.cat([behind, behind.flip(3)], 3)
        return torch.cat([cells, below], 2).clamp(0, 1)

    def cropped(self, count: int, side: int, step: torch.Tensor | None) -> torch.Tensor:
        """Parts of photographs, or the whole of them: [count, 3, side, side]."""
        assert self.textures is not None  # noqa: S101
        h, w = self.textures.shape[2:]
        which = self.choose(len(self.textures), count)
        reach = torch.arange(side, device=self.device) / side
        zoom = torch.ones(count, device=self.device) if step is None else step / 1.6
        top, left = (self.uniform(0, 1, count) * (1 - zoom).clamp(min=0) for _ in range(2))
        ys = ((top[:, None] + zoom[:, None] * reach).clamp(0, 0.999) * h).long()[:, None, :, None]
        xs = ((left[:, None] + zoom[:, None] * reach).clamp(0, 0.999) * w).long()[:, None, None]
        colour = torch.arange(3, device=self.device)[None, :, None, None]
        return self.textures[which[:, None, None, None], colour, ys, xs].float() / 255

    # ------------------------------------------------------------------ how it is drawn

    def drawn(
        self, stage: Stage, paper: torch.Tensor, side: int, mask_side: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures uint8 [N, 3, side, side], shares of each solid [N, P + 1, mask_side, mask_side]."""
        N, S = len(stage.eye), 2 * side
        t = math.gcd(S, 16)
        chunk = max(1, self.rays // S**2)
        cell = (torch.arange(S, device=self.device) * mask_side).div(S, rounding_mode="floor")
        cell = cell[:, None] * mask_side + cell  # [S, S]
        finish = self.finish(paper.shape[0], stage.scene)
        images, covers = [], []
        for start in range(0, N, chunk):
            some = slice(start, min(N, start + chunk))
            part = stage.part(some)
            mirror = any(i * len(paper) // N % 4 == 0 for i in range(some.start, some.stop))
            colour, who = pictured(part, paper[part.scene], S // t, t, mirror=mirror)
            picture = as_picture(colour.permute(0, 3, 1, 2), t)
            images.append(self.developed(functional.avg_pool2d(picture, 2), [x[some] for x in finish]))
            who = as_picture(who, t) * mask_side**2 + cell
            cover = torch.zeros(len(who), (P + 1) * mask_side**2, device=self.device)
            ones = torch.ones((), device=self.device).expand(len(who), S * S)
            cover = cover.scatter_add_(1, who.flatten(1), ones)
            cover = cover.unflatten(1, (P + 1, mask_side, mask_side))
            covers.append(cover / cover.sum(1, keepdim=True))
        return torch.cat(images), torch.cat(covers)

    def finish(self, n: int, scene: torch.Tensor) -> list[torch.Tensor]:
        """Of each frame exposure, colours, curve, blur, sharpness, grain: each [N, ..., 1, 1]."""
        u = self.uniform
        gain = torch.exp(0.15 + 0.2 * self.normal(n, 1) + 0.06 * self.normal(n, 3))
        curve = torch.exp(0.2 * self.normal(n, 1))
        blur = u(-1.0, 1, n, 1).clamp(min=0) ** 2
        grain = u(-0.5, 1, n, 1).clamp(min=0) ** 2 * 0.045
        coarse = u(0, 1, n, 1)
        return [x[scene][..., None, None] for x in (gain, curve, blur, grain, coarse)]

    def developed(self, x: torch.Tensor, finish: list[torch.Tensor]) -> torch.Tensor:
        """Light as a camera records it: [N, 3, side, side] -> uint8."""
        gain, curve, blur, grain, coarse = finish
        x = (x * gain).clamp(min=1e-4)
        x = torch.where(x > 0.8, 1 - 0.2 * torch.exp(-(x - 0.8) / 0.2), x) ** curve
        soft = functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        soft = functional.avg_pool2d(soft, 3, 1, 1, count_include_pad=False)
        x = x + blur * (soft - x)
        noise = self.normal(*x.shape)
        wide = functional.avg_pool2d(noise, 3, 1, 1) * 2
        return _to_bytes(x + grain * (noise + coarse * (wide - noise)))


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


def _posed(
    rows: torch.Tensor,
    scale: torch.Tensor,
    broad: torch.Tensor,
    ground: torch.Tensor,
    lift: torch.Tensor,
    yaw: torch.Tensor,
    pitch: torch.Tensor,
    centre: torch.Tensor,
    gait: torch.Tensor,
    way: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where solids are [n, T, O, PARTS, 3], the way into them [..., 3, 3], half sizes [n, O, ., 3].

    Rows [n, O, PARTS, FIELDS] are moved on the ground [n, T, O, 2] and turned, [n, T, O] each.
    """
    x, y, z = rows[..., things.TURN].unbind(-1)
    still = _times(_about(1, y), _times(_about(0, x), _about(2, z)))[:, None]
    size = (rows[..., things.SIZE] * scale[..., None, None]).clamp(min=1e-4)
    phase = gait[..., None] + rows[:, None, :, :, things.PHASE]
    swing = rows[:, None, :, :, things.SWING] * phase.sin()
    spin = rows[:, None, :, :, things.SPIN] * way[..., None] / size[:, None, :, :, 0]
    own = _times(_about(0, swing + spin), still)
    pivot = rows[:, None, :, :, things.PIVOT]
    arm = rows[:, None, :, :, things.AT] - pivot
    wider = torch.stack([broad, torch.ones_like(broad), torch.ones_like(broad)], -1)[:, None, :, None]
    at = (pivot + (_about(0, swing) * arm[..., None, :]).sum(-1)) * scale[:, None, :, None, None]
    at = at * wider
    rest = torch.stack([0 * centre, centre, 0 * centre], -1).unsqueeze(3)
    whole = _times(_about(1, yaw), _about(0, pitch))[:, :, :, None]
    at = rest + (whole * (at - rest)[..., None, :]).sum(-1)
    at = at + torch.stack([ground[..., 0], lift, ground[..., 1]], -1).unsqueeze(3)
    into = _times(whole / wider[..., None, :], own).transpose(-1, -2) / size[:, None, ..., None]
    return at, into, size


def _length(x: torch.Tensor) -> torch.Tensor:
    return x.square().sum(-1).sqrt()


def _to_bytes(x: torch.Tensor) -> torch.Tensor:
    return (x.clamp(0, 1) * 255).round().to(torch.uint8)
