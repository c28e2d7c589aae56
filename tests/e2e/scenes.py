"""Scenes and clips whose masks are known to the pixel: textured shapes on textured grounds.

Drawn four times too large and shrunk, so that edges are soft as in a photograph; a pixel belongs
to a shape if most of it does.
"""

import colorsys
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Pixels: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float32]

HEIGHT, WIDTH = 384, 512
FINE = 4
SHAPES = ("disc", "box", "star", "drop", "ring")


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape: its centre in pixels, its size from middle to tip, and its rotation."""

    kind: str
    x: float
    y: float
    size: float
    turn: float
    paint: Pixels  # [H, W, 3], what shows through the shape

    def alpha(self) -> Floats:
        """How much of each pixel it covers, [H, W] in 0..1."""
        canvas = Image.new("L", (WIDTH * FINE, HEIGHT * FINE))
        draw = ImageDraw.Draw(canvas)
        draw.polygon([(FINE * x, FINE * y) for x, y in self._outline(1.0)], fill=255)
        if self.kind == "ring":
            draw.polygon([(FINE * x, FINE * y) for x, y in self._outline(0.45)], fill=0)
        small = canvas.resize((WIDTH, HEIGHT), Image.Resampling.BOX)
        return np.asarray(small, np.float32) / np.float32(255)

    def _outline(self, scale: float) -> list[tuple[float, float]]:
        angles = np.linspace(0, 2 * math.pi, 121)[:-1]
        radii = {
            "disc": lambda a: 1.0 + 0 * a,
            "ring": lambda a: 1.0 + 0 * a,
            "box": lambda a: 0.72 / np.maximum(abs(np.cos(a)), abs(np.sin(a))),
            "star": lambda a: 0.78 + 0.22 * np.cos(5 * a),
            "drop": lambda a: 0.7 + 0.3 * np.cos(a),
        }[self.kind](angles)
        reach = self.size * scale * radii
        xs = self.x + reach * np.cos(angles + self.turn)
        ys = self.y + reach * np.sin(angles + self.turn)
        return list(zip(xs.tolist(), ys.tolist(), strict=True))


def paint(rng: np.random.Generator, hue: float, light: float) -> Pixels:
    """A texture in shades of one colour: soft clouds, stripes, and grain."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    clouds = Image.fromarray(rng.random((6, 8), np.float32)).resize(
        (WIDTH, HEIGHT), Image.Resampling.BICUBIC
    )
    angle, step = rng.uniform(0, math.pi), rng.uniform(9, 16)
    stripes = np.sin((x * math.cos(angle) + y * math.sin(angle)) * 2 * math.pi / step)
    grain = rng.standard_normal((HEIGHT, WIDTH), np.float32)
    shade = (np.asarray(clouds) - 0.5) * 0.16 + stripes * 0.05 + grain * 0.02
    colour = np.array(colorsys.hls_to_rgb(hue % 1.0, light, 0.65), np.float32)
    values = np.clip(colour * (1 + shade[:, :, None] / light * 0.5), 0, 1)
    return np.asarray(np.rint(values * 255), np.uint8)


def compose(ground: Pixels, shapes: list[Shape]) -> tuple[Pixels, list[Mask]]:
    """The picture with later shapes on top, and what is to be seen of each shape."""
    picture = ground.astype(np.float32)
    masks: list[Mask] = []
    for shape in shapes:
        alpha = shape.alpha()
        picture += alpha[:, :, None] * (shape.paint - picture)
        covered = alpha >= 0.5
        masks = [*(mask & ~covered for mask in masks), covered]
    return np.rint(picture).astype(np.uint8), masks


def scene(seed: int) -> tuple[Pixels, list[Mask]]:
    """Five shapes on a ground: three apart, and one that lies on top of another."""
    rng = np.random.default_rng(seed)
    hue = rng.random()
    centres = ((100, 100), (400, 95), (95, 290), (330, 265), (405, 300))
    sizes = (62, 58, 60, 74, 46)
    kinds = rng.permutation(SHAPES)
    shapes = [
        Shape(
            str(kind),
            x + rng.uniform(-12, 12),
            y + rng.uniform(-12, 12),
            size,
            rng.uniform(0, 6),
            paint(rng, hue + (i + 1) / 6, 0.35 if i % 2 else 0.62),
        )
        for i, (kind, (x, y), size) in enumerate(zip(kinds, centres, sizes, strict=True))
    ]
    return compose(paint(rng, hue, 0.48), shapes)


def clip(seed: int, frames: int = 36) -> tuple[list[Pixels], list[Mask]]:
    """A star crosses the picture, turning, and is behind a board for a while.

    Another shape stays where it is, as something to be confused with.
    """
    rng = np.random.default_rng(seed)
    hue = rng.random()
    ground, other, board = (paint(rng, hue + shift, 0.5) for shift in (0, 1 / 3, 1 / 2))
    own = paint(rng, hue + 2 / 3, 0.6)
    still = Shape("disc", 70, 80, 40, 0, other)
    left, right = 200, 335
    pictures, masks = [], []
    for time in np.linspace(0, 1, frames):
        moving = Shape(
            "star", 70 + 380 * time, 230 + 50 * math.sin(6 * time), 44 + 8 * time, 3 * time, own
        )
        picture, (_, mask) = compose(ground, [still, moving])
        picture[:, left:right] = board[:, left:right]
        mask[:, left:right] = False
        pictures.append(picture)
        masks.append(mask)
    return pictures, masks


def save(pictures: list[Pixels], folder: Any) -> None:
    """Frames as files that `samgraph track` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"{number:05}.png")
