"""A little drawn video, the same on every machine: integer arithmetic and a frozen generator.

A textured disc crosses from left to right and passes behind a bar; a striped square moves up. The
picture is coarse on purpose: recorded masks are judged by their numbers, not by their looks.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]

HEIGHT, WIDTH, FRAMES = 120, 160, 10


def frame(index: int) -> Image:
    """Frame `index` of the scene, [HEIGHT, WIDTH, 3]."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    picture = _texture(1, 8)
    picture[..., 2] += ((x + 2 * y) // 3).astype(np.int64)

    disc_x, disc_y = 40 + 9 * index, 50 + index * index // 3
    disc = (x - disc_x) ** 2 + (y - disc_y) ** 2 < 22**2
    pattern = np.roll(_texture(2, 4), (disc_y, disc_x), axis=(0, 1))
    picture[disc] = pattern[disc] // 3 + np.array([150, 40, 20])

    top = 84 - 6 * index
    square = (abs(x - 118) < 17) & (abs(y - top) < 17)
    stripes = 60 * ((x - y - top) // 5 % 2)
    picture[square] = stripes[square][:, None] + np.array([30, 90, 140])

    picture[(x >= 84) & (x < 92)] = np.array([60, 62, 58])
    return picture.clip(0, 255).astype(np.uint8)


def frames(count: int = FRAMES) -> list[Image]:
    """The first `count` frames."""
    return [frame(index) for index in range(count)]


def write_frames(folder: Path, count: int = FRAMES) -> None:
    """A folder the reference takes for JPEG files: named so, but PNG inside, to lose nothing."""
    from PIL import Image as Pillow

    for index, picture in enumerate(frames(count)):
        Pillow.fromarray(picture).save(folder / f"{index:05d}.jpg", format="PNG")


def _texture(seed: int, cell: int) -> npt.NDArray[np.int64]:
    """Random squares of `cell` pixels with softened edges, [HEIGHT, WIDTH, 3], 40 to 170."""
    grid = np.random.RandomState(seed).randint(40, 170, (HEIGHT // cell, WIDTH // cell, 3))
    picture = grid.astype(np.int64).repeat(cell, 0).repeat(cell, 1)
    for axis in (0, 1):
        picture = (np.roll(picture, 1, axis) + 2 * picture + np.roll(picture, -1, axis)) // 4
    return picture
