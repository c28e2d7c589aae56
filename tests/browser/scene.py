"""The drawn scene that the browser tests look at, with its true masks."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.media.mask import rle as run_lengths

WIDTH, HEIGHT, FRAMES, RATE = 480, 320, 40, 20
DISC, RADIUS = (140, 160), 60
SQUARE = (300, 90, 420, 210)
AWAY, LOW = range(20, 24), range(30, 33)
BACKGROUND, RED, BLUE = (205, 205, 200), (200, 60, 50), (50, 80, 190)

Mask = NDArray[np.bool_]
Y, X = np.mgrid[:HEIGHT, :WIDTH]


def disc(center: tuple[float, float] = DISC, radius: float = RADIUS) -> Mask:
    """The pixels of a disc, bool [H, W]."""
    inside: Mask = (X - center[0]) ** 2 + (Y - center[1]) ** 2 <= radius**2
    return inside


def square() -> Mask:
    """The pixels of the square, bool [H, W]."""
    inside: Mask = (SQUARE[0] <= X) & (SQUARE[2] > X) & (SQUARE[1] <= Y) & (SQUARE[3] > Y)
    return inside


def disc_at(frame: int) -> tuple[float, float]:
    """Where the disc of the clip is."""
    return 80 + 8.0 * frame, 160.0


def picture(shapes: list[tuple[Mask, tuple[int, int, int]]], width: int = WIDTH) -> bytes:
    """A JPEG of shapes on a plain ground."""
    pixels = np.full((HEIGHT, WIDTH, 3), BACKGROUND, np.uint8)
    for mask, color in shapes:
        pixels[mask] = color
    image = Image.fromarray(pixels)
    if width < WIDTH:
        image = image.resize((width, HEIGHT * width // WIDTH))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95)
    return file.getvalue()


def reply_of(mask: Mask, score: float) -> dict[str, Any]:
    """A mask as replies hold it."""
    encoded = run_lengths.encode(mask)
    ys, xs = np.nonzero(mask)
    box = (
        [int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1] if len(xs) else [0] * 4
    )
    rle = {"size": encoded["size"], "counts": encoded["counts"].decode()}
    return {"rle": rle, "score": score, "box": box, "area": int(mask.sum())}


def mask_of(prompt: dict[str, Any], shapes: list[Mask]) -> Mask:
    """What a prompt selects: shapes under points inside, less a disc round points outside."""
    mask = np.zeros((HEIGHT, WIDTH), np.bool_)
    if prompt.get("mask"):
        given = prompt["mask"]
        mask |= run_lengths.decode({"size": given["size"], "counts": given["counts"].encode()})
    if prompt.get("box"):
        x0, y0, x1, y1 = prompt["box"]
        box = (x0 <= X) & (x1 > X) & (y0 <= Y) & (y1 > Y)
        hit = [shape for shape in shapes if (shape & box).sum() > 0.5 * shape.sum()]
        mask |= np.logical_or.reduce(hit) if hit else box
    points = list(zip(prompt.get("points") or [], prompt.get("labels") or [], strict=True))
    for (x, y), label in points:
        if label:
            hit = [shape for shape in shapes if shape[int(y), int(x)]]
            mask |= hit[0] if hit else disc((x, y), 12)
    for (x, y), label in points:
        if not label:
            mask &= ~disc((x, y), 24)
    return mask


def ranges(frames: set[int]) -> list[tuple[int, int]]:
    """Frames as ranges, ends included."""
    found: list[tuple[int, int]] = []
    for frame in sorted(frames):
        if found and found[-1][1] == frame - 1:
            found[-1] = (found[-1][0], frame)
        else:
            found.append((frame, frame))
    return found
