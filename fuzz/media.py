"""Targets that read images and videos."""

import random
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fuzz.mutators import NUMBERS, mutate_bytes
from fuzz.target import BrokenPromiseError, Target
from samgraph.errors import ImageError, VideoError
from samgraph.media.image.reading import image_size, read_image, read_label_image
from samgraph.media.video.frames import MissingFrameError, OnDamage, open_frames
from tests.media import hostile_images
from tests.media import video_making as making

FRAMES_READ = 30
MOST_FRAMES = 250_000


class ImageTarget(Target):
    """An image: its size from the header, its pixels, and its labels if it is an indexed one."""

    name, errors, seconds, megabytes = "image", (ImageError,), 6.0, 1024

    @cached_property
    def seeds(self) -> list[bytes]:
        return [raw for raw in hostile_images.good_files().values() if len(raw) < 20_000]

    def make(self, rng: random.Random) -> bytes:
        seed = rng.choice(self.seeds)
        if rng.random() < 0.5:
            return hostile_images.mutant(seed, np.random.default_rng(rng.randrange(2**32)))
        return mutate_bytes(rng, seed, self.seeds)

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "image"
        path.write_bytes(data)
        height, width = image_size(path)
        with suppress(ImageError):
            read_label_image(path)
        pixels = read_image(path)
        if pixels.dtype != np.uint8 or pixels.shape[2:] != (3,):
            raise BrokenPromiseError(f"its pixels are {pixels.dtype} {pixels.shape}")
        if sorted(pixels.shape[:2]) != sorted((height, width)):
            raise BrokenPromiseError(f"its size is {height, width}, its pixels {pixels.shape}")

    def good(self) -> list[bytes]:
        return self.seeds


class VideoTarget(Target):
    """A video, read forward and here and there, refusing damage or skipping it."""

    name, errors, seconds, megabytes = "video", (VideoError,), 10.0, 512

    @cached_property
    def seeds(self) -> list[bytes]:
        made = []
        with TemporaryDirectory() as name:
            folder = Path(name)
            for name, codec in (("a.mp4", "libx264"), ("a.mkv", "libx264"), ("a.avi", "mpeg4")):
                path = making.make_video(folder / name, 12, codec=codec, gop=4)
                made.append(path.read_bytes())
            fragments = {"movflags": "frag_keyframe+empty_moov"}
            path = making.make_video(folder / "f.mp4", 12, gop=4, muxing=fragments)
            made.append(path.read_bytes())
        return [*made, making.edited(made[0], [(480, 1024), (200, 1024)])]

    def make(self, rng: random.Random) -> bytes:
        raw = rng.choice(self.seeds)
        kind = rng.randrange(4)
        if kind == 0:
            raw = _with_number(rng, raw)
        elif kind == 1 and raw.startswith(self.seeds[0][:12]) and b"moof" not in raw:
            edits = [(rng.choice(NUMBERS[:24]), rng.choice((-1, 0, 1024, 9000)))]
            raw = making.edited(self.seeds[0], edits * rng.choice((1, 2, 40, 5000)))
        return mutate_bytes(rng, raw, self.seeds) if kind > 1 or rng.random() < 0.3 else raw

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "video"
        path.write_bytes(data)
        refusal: VideoError | None = None
        ways: tuple[OnDamage, ...] = ("error", "skip")
        for on_damage in ways:
            try:
                self.watch(path, on_damage)
            except VideoError as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def watch(self, path: Path, on_damage: OnDamage) -> None:
        with open_frames(path, on_damage=on_damage, cache_frames=3) as source:
            length = source.length or 0
            if length > MOST_FRAMES:
                raise BrokenPromiseError(f"it became {length:,} frames")
            for index in [*range(min(length, FRAMES_READ)), length - 1, length // 2, 0]:
                try:
                    source.frame(index)
                except MissingFrameError:
                    continue
            damage = source.damage
            if length <= FRAMES_READ and damage.decoded + len(damage.missing) != length:
                raise BrokenPromiseError(f"not every frame is accounted for: {damage!r}")

    def good(self) -> list[bytes]:
        return self.seeds


def _with_number(rng: random.Random, raw: bytes) -> bytes:
    """Another number of four bytes near the name of a box that holds counts."""
    kinds = [
        b"stsz",
        b"stts",
        b"ctts",
        b"stsc",
        b"stco",
        b"elst",
        b"trun",
        b"tfhd",
        b"mdhd",
        b"mvhd",
    ]
    found = [kind for kind in kinds if kind in raw]
    if not found:
        return raw
    at = raw.index(rng.choice(found)) + 4 + 4 * rng.randrange(6)
    number = rng.choice(NUMBERS) & 0xFFFFFFFF
    return raw[:at] + number.to_bytes(4) + raw[at + 4 :]


TARGETS = (ImageTarget, VideoTarget)
