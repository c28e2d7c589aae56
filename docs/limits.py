"""What the built-in model is bad at, as a picture for its card: `docs/media/nano-limits.jpg`.

python docs/limits.py [--out FILE]
"""

import argparse
from pathlib import Path

import numpy as np
from demo_clip import CAT, COFFEE, MEDIA
from numpy.typing import NDArray
from PIL import Image, ImageDraw

import samgraph
from samgraph.media.drawing import draw_points
from samgraph.media.image.reading import read_image

WIDTH, HEIGHT, GAP = 440, 300, 8
CLICK_ON_CUP, CLICK_ON_COFFEE, CLICK_ON_WHISKERS = (300, 240), (290, 150), (330, 215)
CLICK_ON_WHEEL = (122, 130)

Pixels = NDArray[np.uint8]


def wheel() -> Pixels:
    """A thin wheel before a plain wall, drawn."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), (186, 196, 202))
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 220, WIDTH, HEIGHT), fill=(120, 110, 96))
    pen.ellipse((120, 30, 320, 230), outline=(40, 36, 34), width=5)
    for spoke in range(12):
        angle = np.pi * spoke / 12
        dx, dy = 98 * np.cos(angle), 98 * np.sin(angle)
        pen.line((220 - dx, 130 - dy, 220 + dx, 130 + dy), fill=(90, 86, 84), width=1)
    return np.asarray(picture)


def tile(model: samgraph.Model, pixels: Pixels, click: tuple[int, int]) -> Image.Image:
    """What one click finds."""
    result = model.image(pixels).predict(points=[click]).best
    shown = Image.fromarray(draw_points(result.overlay(), [click], [1]))
    shown.thumbnail((WIDTH, HEIGHT))
    return shown


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=MEDIA / "nano-limits.jpg")
    out = parser.parse_args().out
    model, coffee, cat = samgraph.load(), read_image(COFFEE), read_image(CAT)
    asked = [
        (coffee, CLICK_ON_CUP),
        (coffee, CLICK_ON_COFFEE),
        (cat, CLICK_ON_WHISKERS),
        (wheel(), CLICK_ON_WHEEL),
    ]
    tiles = [tile(model, pixels, click) for pixels, click in asked]
    sheet = Image.new("RGB", (2 * WIDTH + GAP, 2 * HEIGHT + GAP), (255, 255, 255))
    for i, shown in enumerate(tiles):
        sheet.paste(shown, (i % 2 * (WIDTH + GAP), i // 2 * (HEIGHT + GAP)))
    sheet.save(out, quality=85, optimize=True)


if __name__ == "__main__":
    main()
