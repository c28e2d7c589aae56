"""Real clips to learn from: frames we labelled, and those between them as the teacher draws them.

Labels are boxes and points, four frames apart. Between two of them the box is assumed to move
evenly; where the teacher's mask does not fill that box the frame counts as unknown, and nothing is
learned from it. Objects are also cut out of their clips, to act in others.

Shapes: B clips, K objects, T frames.
"""

import random
from dataclasses import dataclass
from itertools import pairwise

import torch

from training.data import CUT, SIDE, Clips, Prompt, Track
from training.labelling import Teacher, draw
from training.scenes import MASK, Film, Scenes, bounds, sample
from training.solids import Solids
from training.student import Tensors

FITS, SURE = 0.7, 0.75  # how well a mask fills its box; how sure the teacher must be
VISIBLE = 0.002  # of the picture


@dataclass(frozen=True)
class Real:
    """All frames of one clip, and some of its objects."""

    images: torch.Tensor  # uint8 [T, 3, SIDE, SIDE]
    masks: torch.Tensor  # uint8 [K, T, MASK, MASK]
    known: list[list[bool]]  # [K][T]
    visible: list[list[bool]]  # known, and large enough to be shown


def real_films(clips: Clips, taught: Teacher, device: str) -> list[Real]:
    """Every clip with labels, drawn by the teacher."""
    films = []
    for clip in clips.sizes:
        tracks = [track for track in clips.tracks if track.clip == clip]
        if not tracks:
            continue
        first = min(int(track.frames[0]) for track in tracks)
        last = max(int(track.frames[-1]) for track in tracks)
        images = clips.images[first : last + 1].to(device)
        features = taught.encode_all(images)
        drawn = [_whole(track, first, features, taught, clips.sizes[clip]) for track in tracks]
        masks = torch.stack([mask for mask, _ in drawn])
        known = [sure for _, sure in drawn]
        area = (masks.float().mean((2, 3)) / 255).tolist()
        visible = [
            [sure and share > VISIBLE for sure, share in zip(*both, strict=True)]
            for both in zip(known, area, strict=True)
        ]
        films.append(Real(images, masks, known, visible))
    return films


def solid_films(solids: Solids, count: int, frames: int, objects: int) -> list[Real]:
    """Clips of drawn solids, as if they were real."""
    found = []
    for _ in range(count):
        film = solids.clips(1, frames, objects, SIDE, MASK)
        visible = (film.masks[0].float().mean((2, 3)) / 255 > VISIBLE).tolist()
        found.append(Real(film.images[0], film.masks[0], film.known[0].tolist(), visible))
    return found


def _whole(
    track: Track,
    first: int,
    features: Tensors,
    taught: Teacher,
    size: tuple[int, int],
) -> tuple[torch.Tensor, list[bool]]:
    """The masks of an object in every frame, uint8 [T, MASK, MASK], and which are known."""
    prompts = between(track)
    places = [frame - first for frame, (prompt, _) in prompts.items() if prompt]
    given = [prompt for prompt, _ in prompts.values() if prompt]
    there = {name: value[places] for name, value in features.items()}
    cover, score = draw(taught, there, given, size)
    count = len(features["embedding"])
    masks = cover.new_zeros(count, MASK, MASK)
    masks[places] = cover
    known = [False] * count
    for frame, (prompt, exact) in prompts.items():
        known[frame - first] = exact or not prompt
    sure = (score > SURE) & (_filled(cover, given, size) > FITS)
    for place, is_sure in zip(places, sure.tolist(), strict=True):
        known[place] |= is_sure
    return (masks * 255).round().to(torch.uint8), known


def between(track: Track) -> dict[int, tuple[Prompt, bool]]:
    """A prompt for each frame that has or can be given one, and whether it is a label.

    No prompt means that the object is not there. Next to such frames nothing is known.
    """
    labels = dict(zip(track.frames.tolist(), track.prompts, strict=True))
    found: dict[int, tuple[Prompt, bool]] = {frame: (p, True) for frame, p in labels.items()}
    for (a, first), (b, last) in pairwise(labels.items()):
        for frame in range(a + 1, b):
            if not first and not last:
                found[frame] = ({}, False)
            elif first and last:
                share = (frame - a) / (b - a)
                pairs = zip(first["box"], last["box"], strict=True)
                box = [x + share * (y - x) for x, y in pairs]
                found[frame] = ({"box": box}, False)
    return dict(sorted(found.items()))


def _filled(cover: torch.Tensor, prompts: list[Prompt], size: tuple[int, int]) -> torch.Tensor:
    """IoU of each mask's own box with the box that was asked about: [n]."""
    found = torch.cat(bounds(cover > 0.5), 1).float()
    scale = torch.tensor([*size, *size], device=cover.device) / MASK
    asked = torch.tensor([prompt["box"] for prompt in prompts], device=cover.device) / scale
    both = torch.minimum(found[:, 2:], asked[:, 2:]) - torch.maximum(found[:, :2], asked[:, :2])
    area = [(box[:, 2:] - box[:, :2]).clamp(min=0).prod(1) for box in (found, asked)]
    shared = both.clamp(min=0).prod(1)
    return shared / (area[0] + area[1] - shared).clamp(min=1)


class Reel:
    """Draws short films from real clips."""

    def __init__(self, films: list[Real], scenes: Scenes, seed: int) -> None:
        self.films, self.scenes = films, scenes
        self.random = random.Random(seed)  # noqa: S311 (no secret)
        self._roles = [
            (film, k, frames)
            for film in films
            for k, visible in enumerate(film.visible)
            if len(frames := [t for t, seen in enumerate(visible) if seen]) > 1
        ]

    def film(self, batch: int, frames: int, objects: int) -> Film:
        """Parts of clips at various speeds, forwards or backwards, through a camera of our own."""
        images, masks, known = [], [], []
        for _ in range(batch):
            film, things, pick = self._part(frames, objects)
            images.append(film.images[pick])
            masks.append(film.masks[things][:, pick])
            known.append([[film.known[k][t] for t in pick] for k in things])
        sure = torch.tensor(known, device=images[0].device)
        actors = self.actors(batch, frames)
        return self.scenes.refilmed(Film(torch.stack(images), torch.stack(masks), sure), actors)

    def _part(self, frames: int, objects: int) -> tuple[Real, list[int], list[int]]:
        """A clip, objects that are visible in the first of some of its frames, and those frames."""
        while True:
            film = self.random.choice(self.films)
            length = len(film.images)
            step = self.random.choice([s for s in (1, 2, 3, 4) if s * (frames - 1) < length] or [0])
            start = self.random.randrange(length - step * (frames - 1))
            pick = [start + step * i for i in range(frames)]
            if self.random.random() < 0.5:
                pick.reverse()
            seen = [k for k, visible in enumerate(film.visible) if visible[pick[0]]]
            if seen:
                self.random.shuffle(seen)
                return film, [seen[i % len(seen)] for i in range(objects)], pick

    def actors(self, batch: int, frames: int) -> torch.Tensor | None:
        """Objects of real clips cut out as they move: uint8 [B, T, 4, CUT, CUT]."""
        if not self._roles:
            return None
        images, masks = [], []
        for _ in range(batch):
            film, k, there = self.random.choice(self._roles)
            step, place = self.random.choice((1, 1, 2)), self.random.randrange(len(there))
            pick = [there[_to_and_fro(place + step * i, len(there))] for i in range(frames)]
            images.append(film.images[pick])
            masks.append(film.masks[k, pick])
        return cut_out(torch.stack(images), torch.stack(masks))


def _to_and_fro(place: int, length: int) -> int:
    """0, 1, ..., length - 1, length - 2, ..., 0, 1, ..."""
    place %= 2 * length - 2
    return min(place, 2 * length - 2 - place)


def cut_out(images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """The part of each frame around its mask, all of a clip as large, with the mask as alpha.

    [B, T, 3, SIDE, SIDE], [B, T, MASK, MASK] -> [B, T, 4, CUT, CUT].
    """
    B, T = masks.shape[:2]
    low, high = bounds(masks > 127)  # each [B, T, 2]
    size = (high - low).amax((1, 2)).clamp(min=1) * 1.05 / MASK
    theta = masks.new_zeros(B, T, 2, 3, dtype=torch.float32)
    theta[..., 0, 0] = theta[..., 1, 1] = size[:, None]
    theta[..., 2] = (low + high) / MASK - 1
    theta = theta.flatten(0, 1)
    colour = sample(images.flatten(0, 1).float(), theta, CUT)
    alpha = sample(masks.reshape(B * T, 1, MASK, MASK).float(), theta, CUT, outside="zeros")
    films: torch.Tensor = torch.cat([colour, alpha], 1).round().to(torch.uint8)
    return films.reshape(B, T, *films.shape[1:])
