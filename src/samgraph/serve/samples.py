"""Samples that are ready when the page opens: pictures in the package, and a clip drawn of them.

The clip is drawn when it is first asked for: a cup moves, tilts and grows before a blurred cat.
"""

import io
import math
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from samgraph.errors import VideoError
from samgraph.media.image.reading import Rgb, encode_image, read_image
from samgraph.media.video.opening import load_av
from samgraph.media.video.writer import VideoWriter
from samgraph.serve.replies import RequestError

MEDIA: Final = Path(__file__).resolve().parent / "samples_media"
FRAMES, RATE = 48, 12
THUMBNAIL = 320
# The cup with its handle in `coffee.jpg`, clockwise from the left of the rim, in pixels.
CUP = (
    (173, 107), (180, 78), (200, 50), (228, 30), (262, 19), (310, 20), (350, 33), (385, 58),
    (405, 92), (408, 126), (403, 158), (392, 190), (378, 217), (352, 242), (330, 265), (304, 280),
    (274, 283), (252, 284), (232, 304), (206, 301), (196, 278), (206, 250), (217, 235), (197, 217),
    (181, 186), (175, 150),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: its id, what it shows, and what it is."""

    id: str
    title: str
    kind: Literal["image", "video"]
    file: str


SAMPLES = {
    "cat": Sample("cat", "A cat", "image", "cat.jpg"),
    "coffee": Sample("coffee", "A cup of coffee", "image", "coffee.jpg"),
    "cup": Sample("cup", "A moving cup", "video", "cup.mp4"),
}


def known_samples() -> list[Sample]:
    """All samples; without PyAV, those that are images."""
    try:
        load_av()
    except VideoError:
        return [sample for sample in SAMPLES.values() if sample.kind == "image"]
    return list(SAMPLES.values())


class Samples:
    """The files of samples; those that are drawn are kept in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()

    def find(self, name: str, kind: str | None = None) -> Sample:
        """A sample by id.

        Raises:
            RequestError: There is none of this kind.
        """
        sample = SAMPLES.get(name)
        if sample is None or kind not in (None, sample.kind):
            raise RequestError(404, f"there is no such sample {kind or ''}".rstrip())
        return sample

    def path(self, sample: Sample) -> Path:
        """The file of a sample, drawn now if it has not been yet."""
        if sample.kind == "image":
            return MEDIA / sample.file
        with self._lock:
            file = self._folder / sample.file
            if not file.exists():
                self._folder.mkdir(parents=True, exist_ok=True)
                with VideoWriter(file, _ground().shape[:2], rate=RATE, quality=23) as video:
                    for number in range(FRAMES):
                        video.write(clip_frame(number))
            return file

    def thumbnail(self, sample: Sample) -> bytes:
        """A small JPEG."""
        pixels = clip_frame(0) if sample.kind == "video" else read_image(MEDIA / sample.file)
        small = Image.fromarray(pixels)
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        return encode_image(np.asarray(small), "JPEG", quality=85)


def clip_frame(number: int) -> Rgb:
    """A frame of the clip, uint8 [H, W, 3]."""
    time = number / (FRAMES - 1)
    cup = _cup()
    scale = 0.5 * (1 + 0.25 * math.sin(math.pi * time))
    small = cup.resize(
        (round(cup.width * scale), round(cup.height * scale)), Image.Resampling.LANCZOS
    )
    angle = 14 * math.sin(2 * math.pi * time)
    tilted = small.rotate(angle, Image.Resampling.BICUBIC, expand=True)
    frame = Image.fromarray(_ground())
    x, y = 110 + 230 * time, 155 + 30 * math.sin(2 * math.pi * time)
    frame.paste(tilted, (round(x - tilted.width / 2), round(y - tilted.height / 2)), tilted)
    return np.array(frame)


def _ground() -> Rgb:
    """The cat, blurred, with an even number of rows and columns."""
    blurred = Image.fromarray(read_image(MEDIA / "cat.jpg")).filter(ImageFilter.GaussianBlur(4))
    return np.array(blurred)[: blurred.height // 2 * 2, : blurred.width // 2 * 2]


def _cup() -> Image.Image:
    """The cup alone, antialiased, cropped to its box."""
    photograph = Image.open(io.BytesIO((MEDIA / "coffee.jpg").read_bytes())).convert("RGBA")
    fine = 4
    mask = Image.new("L", (photograph.width * fine, photograph.height * fine))
    ImageDraw.Draw(mask).polygon([(fine * x, fine * y) for x, y in CUP], fill=255)
    photograph.putalpha(mask.resize(photograph.size, Image.Resampling.BOX))
    return photograph.crop(photograph.getbbox())
