"""The clip of the demo: a cup moves, tilts and grows in front of a blurred picture.

The cup was outlined by hand in `media/coffee.jpg`. Every frame is composed here, so its true mask
is known to the pixel, and `demo.py` can measure how well the cup was tracked.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from samgraph.media.image.reading import read_image

MEDIA = Path(__file__).resolve().parent / "media"
COFFEE, CAT = MEDIA / "coffee.jpg", MEDIA / "chelsea.jpg"

FRAMES = 36
BLUR = 4  # of the background, in pixels
CUP_SCALE = 0.5  # of its size in the photograph

# The cup with its handle in `coffee.jpg`, clockwise from the left of the rim, in pixels.
OUTLINE = (
    (173, 107), (175, 92), (180, 78), (190, 61), (200, 50), (213, 39), (228, 30), (245, 22),
    (262, 19), (285, 17), (310, 20), (330, 25), (350, 33), (370, 44), (385, 58), (398, 76),
    (405, 92), (408, 110), (408, 126), (405, 142), (403, 158), (398, 175), (392, 190), (386, 203),
    (378, 217), (368, 230), (352, 242), (342, 254), (330, 265), (318, 274), (304, 280), (290, 283),
    (274, 283), (259, 280), (252, 284), (243, 296), (232, 304), (220, 306), (206, 301), (197, 291),
    (196, 278), (199, 264), (206, 250), (217, 235), (206, 227), (197, 217), (188, 203), (181, 186),
    (177, 168), (175, 150), (172, 128),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clip:
    """Frames, uint8 [H, W, 3], and the true mask of the cup on each, bool [H, W]."""

    frames: list[NDArray[np.uint8]]
    masks: list[NDArray[np.bool_]]

    def save(self, folder: Path) -> Path:
        """Write the frames as images, as `samgraph track` reads them."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.png"):
            old.unlink()
        for number, frame in enumerate(self.frames):
            Image.fromarray(frame).save(folder / f"{number:05}.png")
        return folder


def cup_mask() -> NDArray[np.bool_]:
    """The true mask of the cup in `coffee.jpg`."""
    with Image.open(COFFEE) as photograph:
        mask = Image.new("L", photograph.size)
    ImageDraw.Draw(mask).polygon(OUTLINE, fill=255)
    return np.asarray(mask) > 0


def make_clip() -> Clip:
    """All frames and their masks; deterministic."""
    photograph, cat = (Image.fromarray(read_image(path)) for path in (COFFEE, CAT))
    cup, cat = _cup(photograph), cat.filter(ImageFilter.GaussianBlur(BLUR))
    frames, masks = [], []
    for number in range(FRAMES):
        sprite, corner = _placed(cup, number / (FRAMES - 1))
        frame = cat.copy()
        frame.paste(sprite, corner, sprite)
        shown = Image.new("L", cat.size)
        shown.paste(sprite.getchannel("A"), corner)
        mask = np.asarray(shown) >= 128
        frames.append(np.array(frame))
        masks.append(mask)
    return Clip(frames, masks)


def _cup(photograph: Image.Image) -> Image.Image:
    """The cup alone, antialiased, cropped to its box."""
    wide = 4
    mask = Image.new("L", (photograph.width * wide, photograph.height * wide))
    ImageDraw.Draw(mask).polygon([(wide * x, wide * y) for x, y in OUTLINE], fill=255)
    cup = photograph.convert("RGBA")
    cup.putalpha(mask.resize(photograph.size, Image.Resampling.BOX))
    return cup.crop(cup.getbbox())


def _placed(cup: Image.Image, time: float) -> tuple[Image.Image, Any]:
    """The cup at a time from 0 to 1, and the position of its upper left corner.

    It moves from left to right along a sine, tilts to and fro, and grows.
    """
    scale = CUP_SCALE * (1 + 0.2 * time)
    size = (round(cup.width * scale), round(cup.height * scale))
    small = cup.resize(size, Image.Resampling.LANCZOS)
    tilted = small.rotate(12 * math.sin(2 * math.pi * time), Image.Resampling.BICUBIC, expand=True)
    x, y = 120 + 210 * time, 160 + 35 * math.sin(2 * math.pi * time)
    return tilted, (round(x - tilted.width / 2), round(y - tilted.height / 2))
