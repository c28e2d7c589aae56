"""A drawn scene and a drawn clip as tools send them, and how much of a shape a mask covers."""

import base64
import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.evaluate.clicks import first_click
from samgraph.evaluate.davis import box_of, region_similarity
from samgraph.media.video.writer import VideoWriter
from tests.e2e.scenes import Mask, Pixels, clip, scene

GOOD = 0.85
FPS = 10

drawn = cache(scene)
moving = cache(clip)


def png(pixels: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def data_uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64_of(data)}"


@cache
def picture_bytes() -> bytes:
    return png(drawn(0)[0])


def shapes() -> list[Mask]:
    """The masks of the scene's shapes; the first three are apart from each other."""
    return drawn(0)[1]


def click(mask: Mask) -> tuple[float, float]:
    """Where a person would click: the pixel farthest from the edge."""
    x, y = first_click(mask).point
    return float(x), float(y)


def box(mask: Mask) -> tuple[float, float, float, float]:
    left, top, right, bottom = map(float, box_of(mask))
    return left, top, right, bottom


def iou(found: Any, expected: Mask) -> float:
    return float(region_similarity(np.asarray(found, np.bool_), expected))


def frames(count: int = 8) -> tuple[list[Pixels], list[Mask]]:
    """The first frames of a clip in which a star moves."""
    pictures, masks = moving(0)
    return pictures[:count], masks[:count]


def write_clip(path: Path, pictures: list[Pixels]) -> None:
    with VideoWriter(path, pictures[0].shape[:2], rate=FPS) as writer:
        for picture in pictures:
            writer.write(picture)
