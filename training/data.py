"""The pictures: checked against the manifest, split, decoded, and put on the device whole.

    photos    uint8 [n, 3, 512, 512], stretched to a square, with their true aspect
    pets      photos that come with a mask of the animal
    objects   uint8 [n, 4, 256, 256]: things cut out, with alpha, tightly framed
    clips     frames of real videos, and the objects that `labels/clips.json` names in them

Pets are split by file name, clips by name: what is held out is never trained on.
"""

import io
import json
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from training.split import is_held_out

SIDE, CUT = 512, 256
HERE = Path(__file__).parent
EDGE = 128  # the value of pixels that may belong to either side

Bytes = NDArray[np.uint8]
Prompt = dict[str, list[float]]  # box and points in pixels of a frame; {} where absent
_UNLABELLED = {"split": "train", "objects": {}}


@dataclass(frozen=True)
class Photos:
    """Photographs with, for some, the mask of one object: 0, 255, or `EDGE`."""

    images: torch.Tensor  # uint8 [n, 3, SIDE, SIDE]
    aspects: torch.Tensor  # width over height before stretching
    masks: torch.Tensor  # uint8 [n, CUT, CUT]
    has_mask: torch.Tensor  # bool [n]


@dataclass(frozen=True)
class Track:
    """One object of a clip: in which frames it is labelled, and as what."""

    clip: str
    frames: torch.Tensor  # indices into `Clips.images`
    prompts: list[Prompt]


@dataclass(frozen=True)
class Clips:
    """Frames of real videos, and who is in them."""

    images: torch.Tensor  # uint8 [n, 3, SIDE, SIDE]
    sizes: dict[str, tuple[int, int]]  # width and height of each clip before stretching
    tracks: list[Track]


def read_pets(folder: Path, *, held_out: bool, limit: int | None = None) -> Photos:
    """The photographs of cats and dogs, with their masks."""
    images: list[bytes] = []
    masks = []
    for part in ("pets-0.tar", "pets-1.tar"):
        files = dict(_members(folder / part))
        for name in sorted(files):
            enough = limit is not None and len(images) >= limit
            if name.endswith(".jpg") and is_held_out(name) == held_out and not enough:
                trimap = np.asarray(Image.open(io.BytesIO(files[name[:-3] + "png"])))
                values = np.select([trimap == 1, trimap == 3], [255, EDGE]).astype(np.uint8)
                images.append(files[name])
                masks.append(np.asarray(Image.fromarray(values).resize((CUT, CUT), 0)))
    return Photos(
        _squares(images),
        torch.ones(len(images)),
        torch.from_numpy(np.stack(masks)),
        torch.ones(len(images), dtype=torch.bool),
    )


def read_photos(folder: Path, limit: int | None = None) -> Photos:
    """Photographs without masks."""
    files = [data for name, data in _members(folder / "photos.tar") if name.endswith(".jpg")]
    sizes = [Image.open(io.BytesIO(data)).size for data in files[:limit]]
    count = len(sizes)
    return Photos(
        _squares(files[:limit]),
        torch.tensor([width / height for width, height in sizes]),
        torch.zeros(count, CUT, CUT, dtype=torch.uint8),
        torch.zeros(count, dtype=torch.bool),
    )


def read_clips(folder: Path, *, split: str, limit: int | None = None) -> Clips:
    """The clips of one split, `train` or `held-out`, with their labels."""
    labels = json.loads((HERE / "labels" / "clips.json").read_text())
    images: list[bytes] = []
    sizes: dict[str, tuple[int, int]] = {}
    places: dict[tuple[str, int], int] = {}
    for name, data in sorted(_members(folder / "clips.tar")):
        _, clip, frame = name.split("/")
        if limit is not None and clip not in sizes and len(sizes) >= limit:
            continue
        if labels.get(clip, _UNLABELLED)["split"] == split:
            sizes[clip] = Image.open(io.BytesIO(data)).size
            places[clip, int(Path(frame).stem)] = len(images)
            images.append(data)
    tracks = []
    for clip in sizes:
        for thing in labels.get(clip, _UNLABELLED)["objects"].values():
            frames = sorted((int(number), prompt) for number, prompt in thing["frames"].items())
            where = torch.tensor([places[clip, number] for number, _ in frames])
            prompts = [{} if prompt.get("absent") else prompt for _, prompt in frames]
            tracks.append(Track(clip, where, prompts))
    return Clips(_squares(images), sizes, tracks)


def clip_photos(clips: Clips) -> Photos:
    """The frames of clips as photographs."""
    count = len(clips.images)
    aspect = np.mean([width / height for width, height in clips.sizes.values()])
    return Photos(
        clips.images,
        torch.full((count,), float(aspect)),
        torch.zeros(count, CUT, CUT, dtype=torch.uint8),
        torch.zeros(count, dtype=torch.bool),
    )


def joined(*parts: Photos) -> Photos:
    """Several collections as one."""
    return Photos(
        torch.cat([part.images for part in parts]),
        torch.cat([part.aspects for part in parts]),
        torch.cat([part.masks for part in parts]),
        torch.cat([part.has_mask for part in parts]),
    )


def read_objects(folder: Path, pets: Photos, limit: int | None = None) -> torch.Tensor:
    """Cut-outs with alpha, and the animals of the photographs: uint8 [n, 4, CUT, CUT]."""
    found = [
        _framed(np.asarray(Image.open(io.BytesIO(data)).convert("RGBA")))
        for name, data in _members(folder / "cutouts.tar")
        if not name.endswith(".json")
    ][:limit]
    both = torch.cat([pets.images[:, :, ::2, ::2], pets.masks[:, None]], 1)
    with ThreadPoolExecutor() as workers:
        found += workers.map(_framed, both.permute(0, 2, 3, 1).numpy())
    return torch.from_numpy(np.stack([item for item in found if item is not None]))


def _framed(rgba: Bytes) -> Bytes | None:
    """The object with a little room around it; None where there is hardly anything."""
    ys, xs = np.nonzero(rgba[..., 3] > 127)
    if len(ys) < 200:
        return None
    room = 4
    left, top = int(xs.min()) - room, int(ys.min()) - room
    right, bottom = int(xs.max()) + room + 1, int(ys.max()) + room + 1
    cut = Image.fromarray(rgba).crop((left, top, right, bottom))
    side = max(cut.size)
    scale = CUT / side
    size = (max(1, round(cut.width * scale)), max(1, round(cut.height * scale)))
    framed = Image.new("RGBA", (CUT, CUT))
    framed.paste(cut.resize(size, Image.Resampling.BILINEAR), ((CUT - size[0]) // 2, 0))
    return np.asarray(framed).transpose(2, 0, 1)


def _squares(files: list[bytes]) -> torch.Tensor:
    with ThreadPoolExecutor() as workers:
        return torch.from_numpy(np.stack(list(workers.map(_square, files))))


def _square(data: bytes) -> Bytes:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).transpose(2, 0, 1)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                content = archive.extractfile(member)
                yield member.name, content.read() if content else b""
