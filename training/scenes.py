"""Pictures made on the device: crops, mosaics, pasted objects, and clips in which all of it moves.

Everything is drawn for a whole batch at once by sampling through affine maps, and every pasted
thing leaves an exact mask. Masks are 8-bit coverage at 256 x 256, half of the picture's side: what
the model's masks are compared with.

Shapes: n pictures, B clips, T frames, K objects, G masks of a picture.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from samgraph.media.image.preprocess import MEAN, STD
from training.data import CUT, SIDE, Photos

MASK = SIDE // 2
TILES, PASTED = 4, 4
PLAIN = 0.08  # pictures that begin as nothing but a texture
THINGS = 4  # that move in front, in a clip; the last two are small
LEAP = (0.3, 0.3, 0.6, 0.6)  # how often each of them leaps


class Scenes:
    """Draws from photographs and cut-out objects, with random numbers of its own."""

    def __init__(self, photos: Photos, objects: torch.Tensor, device: str, seed: int) -> None:
        self.device = torch.device(device)
        self.random = torch.Generator(self.device).manual_seed(seed)
        self.photos = Photos(*(getattr(photos, name).to(device) for name in _FIELDS))
        drawn = [self.drawn_objects(100) for _ in range(max(1, len(objects) // 300))]
        self.objects = torch.cat([objects.to(device), *drawn])

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

    # ------------------------------------------------------------------ still pictures

    def views(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures uint8 [n, 3, SIDE, SIDE] and masks uint8 [n, TILES + PASTED, MASK, MASK]."""
        whole, mask = self.crops(n)
        tiles, tile_masks = self.crops(n * TILES)
        mosaic, mosaic_masks = _tiled(tiles), _tiled_masks(tile_masks)
        is_mosaic = (self.uniform(0, 1, n) < 0.35).reshape(n, 1, 1, 1)
        picture = torch.where(is_mosaic, mosaic, whole)
        single = functional.avg_pool2d(mask, CUT // MASK)
        single = functional.pad(single, (0, 0, 0, 0, 0, TILES - 1))
        masks = torch.where(is_mosaic, mosaic_masks, single)
        is_plain = (self.uniform(0, 1, n) < PLAIN).reshape(n, 1, 1, 1)
        picture = torch.where(is_plain, self.texture(n, SIDE), picture)
        masks = masks * ~is_plain
        wanted = self.choose(PASTED + 1, n) * (self.uniform(0, 1, n) < 0.6)
        for i in range(PASTED):
            cut = self.objects[self.choose(len(self.objects), n)].float() / 255
            pose = self.pose(n, small=i >= PASTED // 2)
            layer = place(self.tinted(cut), pose, small=i >= PASTED // 2)
            layer = layer * (wanted > i).reshape(n, 1, 1, 1)
            picture, masks = _paste(picture, masks, layer)
        return _to_bytes(picture), _to_bytes(masks)

    def crops(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Parts of photographs, stretched and mirrored: [n, 3, SIDE, SIDE], [n, 1, CUT, CUT]."""
        chosen = self.choose(len(self.photos.images), n)
        aspect = self.photos.aspects[chosen]
        wanted = torch.exp(0.3 * self.normal(n))
        zoom = self.uniform(0.45, 1.0, n)
        spans = torch.stack([zoom * (wanted / aspect).sqrt(), zoom * (aspect / wanted).sqrt()], 1)
        spans = spans / spans.amax(1, keepdim=True).clamp(min=1)
        centre = self.uniform(-1, 1, n, 2) * (1 - spans)
        flip = torch.where(self.uniform(0, 1, n) < 0.5, -1.0, 1.0)
        theta = torch.zeros(n, 2, 3, device=self.device)
        theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = spans[:, 0] * flip, spans[:, 1], centre
        image = sample(self.photos.images[chosen].float() / 255, theta, SIDE)
        mask = sample(self.photos.masks[chosen][:, None].float() / 255, theta, CUT)
        return image, mask

    def pose(self, n: int, *, small: bool) -> torch.Tensor:
        """Where to paste: centre x, y, log size, log stretch, turn: [n, 5]."""
        low, high = (0.08, 0.25) if small else (0.25, 0.7)
        size = self.uniform(math.log(low), math.log(high), n, 1)
        rest = torch.cat([0.2 * self.normal(n, 1), 0.3 * self.normal(n, 1)], 1)
        return torch.cat([self.uniform(-0.9, 0.9, n, 2), size, rest], 1)

    def tinted(self, rgba: torch.Tensor) -> torch.Tensor:
        """Objects in another light, some mirrored."""
        n = len(rgba)
        gain = torch.exp(0.15 * self.normal(n, 1, 1, 1) + 0.05 * self.normal(n, 3, 1, 1))
        flip = (self.uniform(0, 1, n) < 0.5).reshape(n, 1, 1, 1)
        rgba = torch.where(flip, rgba.flip(3), rgba)
        return torch.cat([(rgba[:, :3] * gain).clamp(0, 1), rgba[:, 3:]], 1)

    def drawn_objects(self, n: int) -> torch.Tensor:
        """Blobs, boxes and stars with textures: uint8 [n, 4, CUT, CUT]."""
        axis = torch.linspace(-1, 1, CUT, device=self.device)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        power = 2.0 ** self.uniform(0, 3, n, 1, 1)
        radius = (x.abs() ** power + y.abs() ** power) ** (1 / power)
        angle, limit = torch.atan2(y, x), torch.full((n, CUT, CUT), 0.75, device=self.device)
        for k in range(2, 7):
            swing = 0.25 / k * self.normal(n, 1, 1)
            limit = limit + swing * torch.cos(k * angle + self.uniform(0, 2 * math.pi, n, 1, 1))
        alpha = ((limit - radius) * CUT / 4).clamp(0, 1)[:, None]
        return _to_bytes(torch.cat([self.texture(n, CUT), alpha], 1))

    def texture(self, n: int, side: int) -> torch.Tensor:
        """Noise of several sizes, or stripes, in a few colours: [n, 3, side, side]."""
        total = self.uniform(0, 1, n, 3, 1, 1).expand(n, 3, side, side)
        for cells in (2, 4, 8, 32, 128):
            share = self.uniform(0, 0.2, n, 1, 1, 1) * 0.15 ** self.uniform(0, 1, n, 1, 1, 1)
            grain = functional.interpolate(self.normal(n, 3, cells, cells), side, mode="bicubic")
            total = total + share * grain
        axis = torch.linspace(0, 1, side, device=self.device)
        turn, pace = self.uniform(0, math.pi, n, 1, 1), self.uniform(4, 60, n, 1, 1)
        wave = torch.sin(pace * (axis * turn.cos() + axis[:, None] * turn.sin()))[:, None]
        striped = (self.uniform(0, 1, n) < 0.3).reshape(n, 1, 1, 1)
        return (total + striped * wave.sign() * 0.2 * self.normal(n, 3, 1, 1)).clamp(0, 1)

    def lit(self, images: torch.Tensor) -> torch.Tensor:
        """Bytes [n, ..., 3, S, S] -> model input, each in its own light, grain and sharpness."""
        n, inner = len(images), images.shape[1:-3]
        x = images.flatten(0, -4).float() / 255
        each = x.shape[0] // n

        def per(value: torch.Tensor) -> torch.Tensor:
            return value.repeat_interleave(each, 0)[..., None, None]

        strength = self.uniform(0, 1, n, 1)
        gain = torch.exp(strength * (0.2 * self.normal(n, 1) + 0.06 * self.normal(n, 3)))
        contrast = torch.exp(strength * 0.2 * self.normal(n, 1))
        x = ((x - 0.45) * per(contrast) + 0.45) * per(gain)
        soft = functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        x = x + per(strength * self.uniform(-0.8, 1.2, n, 1)) * (x - soft)
        x = x + per(strength * self.uniform(0, 0.04, n, 1)) * self.normal(*x.shape)
        return normalised(x.clamp(0, 1)).reshape(n, *inner, *x.shape[1:])

    # ------------------------------------------------------------------ clips

    def clips(
        self,
        pictures: torch.Tensor,
        masks: torch.Tensor,
        frames: int,
        objects: int,
        actors: torch.Tensor | None = None,
    ) -> "Film":
        """A moving camera over pictures whose masks are known, with things that move in front."""
        B, T = len(pictures), frames
        camera = self.path(B, T, (0.35, 0.35, 0.3, 0.08, 0.15)) + 0.3 * self.leaps(B, T, 0.3)
        base = _repeat(pictures.float() / 255, T)
        bend = self.bend(B, T, 0.04)
        theta = _theta(camera.flatten(0, 1))
        picture = sample(base, theta, SIDE, bend)
        seen = sample(_repeat(masks.float() / 255, T), theta, MASK, bend, outside="zeros")
        known = torch.ones(B, masks.shape[1], T, dtype=torch.bool, device=self.device)
        return self.acted(picture, seen, known, objects, often=1.0, first=0.3, actors=actors)

    def refilmed(self, film: "Film", actors: torch.Tensor | None = None) -> "Film":
        """The same clips through a camera that turns, moves and zooms, some mirrored.

        In some of them things move in front.
        """
        B, T, K = len(film.images), film.images.shape[1], film.masks.shape[1]
        shift, rest = self.uniform(-0.3, 0.3, B, 1, 2), 0.1 * self.normal(B, 1, 2)
        still = torch.cat([shift, self.uniform(-0.2, 0.5, B, 1, 1), rest], 2)
        camera = still + self.path(B, T, (0.2, 0.2, 0.15, 0.04, 0.08))
        camera = camera + 0.3 * self.leaps(B, T, 0.3)
        theta = _theta(camera.flatten(0, 1))
        flip = torch.where(self.uniform(0, 1, B) < 0.5, -1.0, 1.0).repeat_interleave(T)
        theta = theta * torch.stack([flip, torch.ones_like(flip)], 1)[:, :, None]
        picture = sample(film.images.flatten(0, 1).float() / 255, theta, SIDE)
        masks = film.masks.transpose(1, 2).flatten(0, 1).float() / 255
        seen = sample(masks, theta, MASK, outside="zeros")
        leader = _traced(seen[:, 0].reshape(B, T, MASK, MASK))
        return self.acted(
            picture, seen, film.known, K, often=0.5, first=0.0, actors=actors, leader=leader
        )

    def acted(
        self,
        picture: torch.Tensor,
        masks: torch.Tensor,
        known: torch.Tensor,
        objects: int,
        *,
        often: float,
        first: float,
        actors: torch.Tensor | None = None,
        leader: torch.Tensor | None = None,
    ) -> "Film":
        """Clips with things moving in front of them, and some of all that can be followed.

        `picture` [B*T, 3, SIDE, SIDE], `masks` [B*T, G, MASK, MASK], `known` [B, G, T]. Each thing
        is there `often`, and comes `first` by so much in the choice of what is followed. `actors`
        [B, T, 4, CUT, CUT] play the first thing in half of the clips. The second may cross its path
        and the small ones ride on it, or on what moves along a `leader` [B, T, 5].
        """
        B, _, T = known.shape
        chosen = self.choose(len(self.objects), THINGS, B)
        twins = self.uniform(0, 1, B) < 0.2
        chosen[1] = torch.where(twins, chosen[0], chosen[1])
        for i in range(THINGS):
            cut = _repeat(self.tinted(self.objects[chosen[i]].float() / 255), T)
            if i == 0 and actors is not None:
                plays = (self.uniform(0, 1, B) < 0.5).repeat_interleave(T)
                cut = torch.where(_wide(plays), actors.flatten(0, 1).float() / 255, cut)
            small = i >= THINGS // 2
            moved = self.pose(B, small=small)[:, None] + self.path(B, T, _WANDER)
            if leader is not None and i > 0:
                other = self.riding(leader) if small else self.crossing(leader)
                moved = torch.where(_wide(self.uniform(0, 1, B) < 0.4, 2), other, moved)
            there = self.presence(B, T)
            moved = self.returned(moved + self.leaps(B, T, LEAP[i]), there)
            leader = moved if leader is None else leader
            layer = place(cut, moved.flatten(0, 1), bend=self.bend(B, T, 0.08), small=small)
            there = there * (self.uniform(0, 1, B, 1) < often)
            picture, masks = _paste(picture, masks, layer * _wide(there.flatten()))
        masks = masks.reshape(B, T, -1, MASK, MASK).transpose(1, 2)
        known = functional.pad(known, (0, 0, 0, THINGS), value=True)
        chosen = self.targets(masks, objects, first)
        wanted = masks.gather(1, _wide(chosen, 3).expand(-1, -1, *masks.shape[2:]))
        known = known.gather(1, chosen[:, :, None].expand(-1, -1, T))
        return Film(_to_bytes(picture).reshape(B, T, 3, SIDE, SIDE), _to_bytes(wanted), known)

    def riding(self, path: torch.Tensor) -> torch.Tensor:
        """The path of something smaller that moves along with what is on `path` [B, T, 5]."""
        B = len(path)
        smaller = self.uniform(math.log(0.2), math.log(0.6), B, 1, 1)
        place = self.uniform(-0.7, 0.7, B, 1, 2) * path[:, :, 2:3].exp()
        own = self.path(B, path.shape[1], (0.1, 0.1, 0.1, 0.1, 0.3))
        rest = torch.cat([smaller, torch.zeros_like(smaller).expand(B, 1, 2)], 2)
        return path + own + torch.cat([place, rest.expand(B, path.shape[1], 3)], 2)

    def crossing(self, path: torch.Tensor) -> torch.Tensor:
        """The path of something that passes or stands before what is on `path` [B, T, 5]."""
        B, T, _ = path.shape
        when = self.choose(T, B, 1) + 0.0
        met = path[torch.arange(B, device=self.device), when[:, 0].long()][:, None, :2]
        turn, speed = self.uniform(0, 6.28, B), self.uniform(-0.15, 0.5, B).clamp(min=0)
        step = torch.stack([turn.cos(), turn.sin()], 1) * speed[:, None]
        time = torch.arange(T, device=self.device) - when
        size = self.uniform(math.log(0.25), math.log(0.9), B, 1, 1)
        rest = torch.cat([size, 0.4 * self.normal(B, 1, 1), 0.5 * self.normal(B, 1, 1)], 2)
        return torch.cat([met + time[:, :, None] * step[:, None], rest.expand(B, T, 3)], 2)

    def path(self, B: int, T: int, sizes: tuple[float, ...]) -> torch.Tensor:
        """Smooth changes of a pose over time, starting at none: [B, T, 5]."""
        time = torch.arange(T, device=self.device)[None, :, None] / 7
        time = time * torch.exp(0.5 * self.normal(B, 1, 1))
        scale = torch.tensor(sizes, device=self.device) * self.uniform(0, 1, B, 1, 1) * 1.5
        drift, sway = self.normal(B, 1, 5), self.normal(B, 1, 5)
        phase, pace = self.uniform(0, 6.28, B, 1, 5), self.uniform(2, 8, B, 1, 5)
        wave = torch.sin(pace * time + phase) - torch.sin(phase)
        return scale * (drift * time + 0.4 * sway * wave)

    def bend(self, B: int, T: int, size: float) -> torch.Tensor:
        """Smooth displacements that change over time: [B*T, 2, 16, 16]."""
        time = torch.linspace(0, 1, T, device=self.device)[None, :, None, None, None]
        phase, pace = self.uniform(0, 6.28, B, 1, 2, 4, 4), self.uniform(1, 7, B, 1, 2, 4, 4)
        field = size * self.uniform(0, 1, B, 1, 1, 1, 1) * torch.sin(phase + pace * time)
        return functional.interpolate(field.flatten(0, 1), 16, mode="bicubic")

    def leaps(self, B: int, T: int, often: float) -> torch.Tensor:
        """Fast swings of some things, many by more than their size in a frame: [B, T, 5]."""
        time = torch.arange(T, device=self.device)[None, :, None]
        phase, pace = self.uniform(0, 6.28, B, 1, 2), self.uniform(0.7, 3, B, 1, 2)
        size = self.uniform(0.1, 0.7, B, 1, 1) * (self.uniform(0, 1, B, 1, 1) < often)
        return functional.pad(size * torch.sin(phase + pace * time), (0, 3))

    def presence(self, B: int, T: int) -> torch.Tensor:
        """1 where a thing is there; some are away for a while, few of them for good: [B, T]."""
        time = torch.arange(T, device=self.device)
        gone = self.choose(max(1, T - 2), B, 1) + 1
        back = gone + 1 + self.choose(max(1, T // 2), B, 1)
        for_good = self.uniform(0, 1, B, 1) < 0.2
        back = torch.where(for_good, back, back.clamp(max=T - 1))
        leaves = self.uniform(0, 1, B, 1) < 0.35
        return 1.0 - ((time >= gone) & (time < back) & leaves).float()

    def returned(self, path: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """A path [B, T, 5] that goes on elsewhere after an absence, in half of the clips."""
        B = len(path)
        after = (there > 0) & (there.cummin(1).values < 1)
        met = path[torch.arange(B, device=self.device), after.float().argmax(1), :2]
        shift = (self.uniform(-0.8, 0.8, B, 2) - met) * (self.uniform(0, 1, B, 1) < 0.5)
        return path + functional.pad(after[:, :, None] * shift[:, None], (0, 3))

    def targets(self, known: torch.Tensor, count: int, first: float) -> torch.Tensor:
        """Which masks to follow: those seen well at the start, moving things `first` by so much."""
        seen = known[:, :, 0].mean((2, 3))
        fits = (seen > 0.002) & (seen < 0.6)
        last = torch.arange(known.shape[1], device=self.device) >= known.shape[1] - THINGS
        order = self.uniform(0, 1, *seen.shape) + first * last + 2.0 * fits
        return order.topk(count, 1).indices


@dataclass(frozen=True)
class Film:
    """Clips with exact masks."""

    images: torch.Tensor  # uint8 [B, T, 3, SIDE, SIDE]
    masks: torch.Tensor  # uint8 [B, K, T, MASK, MASK]
    known: torch.Tensor  # bool [B, K, T]: whether the mask can be trusted


_WANDER = (0.8, 0.8, 0.35, 0.1, 0.5)
_FIELDS = ("images", "aspects", "masks", "has_mask")


def normalised(x: torch.Tensor) -> torch.Tensor:
    """Values 0 to 1 as the model wants them: [..., 3, H, W]."""
    mean, std = (torch.tensor(v, device=x.device).reshape(3, 1, 1) for v in (MEAN, STD))
    return (x - mean) / std


def sample(
    x: torch.Tensor,
    theta: torch.Tensor,
    side: int,
    bend: torch.Tensor | None = None,
    outside: str = "reflection",
) -> torch.Tensor:
    """A picture seen through an affine map of the square and small displacements."""
    grid = functional.affine_grid(theta, [len(theta), 1, side, side], align_corners=False)
    if bend is not None:
        moved = functional.interpolate(bend, side, mode="bilinear", align_corners=False)
        grid = grid + moved.permute(0, 2, 3, 1)
    return functional.grid_sample(x, grid, padding_mode=outside, align_corners=False)


def place(
    rgba: torch.Tensor, pose: torch.Tensor, *, bend: torch.Tensor | None = None, small: bool
) -> torch.Tensor:
    """An object on an empty canvas, colours times alpha: [n, 4, SIDE, SIDE]."""
    if small:  # sampled from a smaller copy: no sparkle
        rgba = functional.avg_pool2d(rgba, 2)
    solid = torch.cat([rgba[:, :3] * rgba[:, 3:], rgba[:, 3:]], 1)
    return sample(solid, _theta(pose), SIDE, bend, outside="zeros")


def _theta(pose: torch.Tensor) -> torch.Tensor:
    """From a pose to the map from canvas to object: [n, 5] -> [n, 2, 3]."""
    x, y, size, stretch, turn = pose.unbind(1)
    across, down = torch.exp(-size - stretch / 2), torch.exp(-size + stretch / 2)
    cos, sin = turn.cos(), turn.sin()
    rows = torch.stack([torch.stack([across * cos, across * sin], 1),
                        torch.stack([-down * sin, down * cos], 1)], 1)  # fmt: skip
    shift = -(rows @ torch.stack([x, y], 1)[:, :, None])
    return torch.cat([rows, shift], 2)


def _paste(
    picture: torch.Tensor, masks: torch.Tensor, layer: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A layer over a picture; what it covers is taken off the masks, and it adds its own."""
    picture = picture * (1 - layer[:, 3:]) + layer[:, :3]
    cover = functional.avg_pool2d(layer[:, 3:], SIDE // MASK)
    return picture, torch.cat([masks * (1 - cover), cover], 1)


def _tiled(x: torch.Tensor) -> torch.Tensor:
    """Four pictures as one: [4n, C, S, S] -> [n, C, S, S]."""
    half = functional.avg_pool2d(x, 2)
    n, C, side = len(x) // TILES, x.shape[1], half.shape[-1]
    cells = half.reshape(n, 2, 2, C, side, side).permute(0, 3, 1, 4, 2, 5)
    return cells.reshape(n, C, 2 * side, 2 * side)


def _tiled_masks(masks: torch.Tensor) -> torch.Tensor:
    """The masks of four pictures, each in its corner: [4n, 1, CUT, CUT] -> [n, 4, MASK, MASK]."""
    n, side = len(masks) // TILES, MASK // 2
    small = functional.avg_pool2d(masks, CUT // side)
    out = masks.new_zeros(n, TILES, MASK, MASK)
    for i in range(TILES):
        top, left = i // 2 * side, i % 2 * side
        out[:, i, top : top + side, left : left + side] = small[i::TILES, 0]
    return out


def bounds(inside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first x and y of masks [..., h, w], and those after the last: each [..., 2]."""
    found = []
    for line in (inside.any(-2), inside.any(-1)):
        step = torch.arange(line.shape[-1], device=line.device)
        low = torch.where(line, step, line.shape[-1]).amin(-1)
        found.append(torch.stack([low, torch.where(line, step + 1, 0).amax(-1)], -1))
    low, high = torch.stack(found, -2).unbind(-1)
    return low, high


def _traced(masks: torch.Tensor) -> torch.Tensor:
    """Where a mask is and how large, as a path: [B, T, MASK, MASK] -> [B, T, 5]."""
    axis = (torch.arange(MASK, device=masks.device) + 0.5) * 2 / MASK - 1
    total = masks.sum((2, 3)) + 1e-3
    x, y = (masks.sum(2) * axis).sum(2) / total, (masks.sum(3) * axis).sum(2) / total
    size = (total / MASK**2).sqrt().clamp(min=0.05).log()
    return torch.stack([x, y, size, torch.zeros_like(x), torch.zeros_like(x)], 2)


def _wide(x: torch.Tensor, axes: int = 3) -> torch.Tensor:
    """With more axes of length one behind."""
    return x.reshape(*x.shape, *(1,) * axes)


def _repeat(x: torch.Tensor, times: int) -> torch.Tensor:
    return x.repeat_interleave(times, 0)


def _to_bytes(x: torch.Tensor) -> torch.Tensor:
    return (x.clamp(0, 1) * 255).round().to(torch.uint8)
