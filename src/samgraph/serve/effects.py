"""Effects on selected objects: uint8 [H, W, 3] and a mask [H, W] in, pixels out.

The same names and parameters are used by the page, which draws them live.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from samgraph.errors import OptionError
from samgraph.media.drawing import Colour, cutout, object_colour
from samgraph.media.image.reading import Rgb
from samgraph.serve.schema import Effect, EffectInfo, EffectParam

Mask = NDArray[np.bool_]

GREEN_SCREEN: Colour = (0, 177, 64)
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True, slots=True)
class Painted:
    """An object to draw: its mask [H, W] and colour."""

    mask: Mask
    colour: Colour


@dataclass(frozen=True, slots=True)
class EffectKind:
    """An effect: its name, title, what it changes by default, its parameters, and its function."""

    name: str
    title: str
    target: str
    params: tuple[EffectParam, ...]
    draw: Callable[[Rgb, Mask, Sequence[Painted], dict[str, float], Colour | None], Rgb]


def apply(effect: Effect, pixels: Rgb, objects: Sequence[Painted]) -> NDArray[np.uint8]:
    """The picture with the effect: [H, W, 3], or [H, W, 4] for a cut-out.

    Raises:
        OptionError: There is no such effect, or a number is out of range.
    """
    kind, numbers, colour = read_effect(effect)
    mask = union(objects, pixels.shape[:2])
    if (effect.target or kind.target) == "background":
        mask = ~mask
    if kind.name == "cutout":
        return cutout(pixels, ~mask)
    return kind.draw(pixels, mask, objects, numbers, colour)


def apply_opaque(effect: Effect, pixels: Rgb, objects: Sequence[Painted]) -> Rgb:
    """As `apply`, for videos: the removed pixels become green, or the colour given."""
    drawn = apply(effect, pixels, objects)
    if drawn.shape[2] == 3:
        return drawn
    screen = np.array(colour_of(effect.color) or GREEN_SCREEN, np.uint8)
    return np.where(drawn[:, :, 3:] > 0, drawn[:, :, :3], screen).astype(np.uint8)


def read_effect(effect: Effect) -> tuple[EffectKind, dict[str, float], Colour | None]:
    """The kind of an effect, its numbers and its colour.

    Raises:
        OptionError: There is no such effect, or a number is out of range.
    """
    if effect.name not in EFFECTS:
        raise OptionError(f"there is no effect `{effect.name}`", expected=", ".join(EFFECTS))
    kind = EFFECTS[effect.name]
    numbers = {}
    for param in kind.params:
        given = getattr(effect, param.name)
        value = param.default if given is None else given
        if not param.min <= value <= param.max:
            raise OptionError(
                f"`{param.name}` of {kind.name} is out of range",
                got=value,
                expected=f"{param.min:g} to {param.max:g}",
            )
        numbers[param.name] = value
    return kind, numbers, colour_of(effect.color)


def colour_of(text: str | None) -> Colour | None:
    """The numbers of `#rrggbb`."""
    if text is None:
        return None
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def union(objects: Sequence[Painted], size_hw: tuple[int, ...]) -> Mask:
    """The pixels of any object, bool [H, W]."""
    mask = np.zeros(size_hw[:2], np.bool_)
    for painted in objects:
        mask |= painted.mask
    return mask


def object_paint(number: int, color: str | None, mask: Mask) -> Painted:
    """An object in its own colour, or in that of its number."""
    return Painted(mask, colour_of(color) or object_colour(number))


def effect_list() -> list[EffectInfo]:
    """The effects as `info` lists them."""
    return [
        EffectInfo(kind.name, kind.title, kind.target, list(kind.params))
        for kind in EFFECTS.values()
    ]


def _cutout(
    pixels: Rgb, mask: Mask, _: Sequence[Painted], __: dict[str, float], ___: Colour | None
) -> Rgb:
    return cutout(pixels, ~mask)


def _blur(
    pixels: Rgb, mask: Mask, _: Sequence[Painted], numbers: dict[str, float], __: Colour | None
) -> Rgb:
    blurred = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(numbers["strength"]))
    return _chosen(mask, np.asarray(blurred), pixels)


def _grey(
    pixels: Rgb, mask: Mask, _: Sequence[Painted], numbers: dict[str, float], __: Colour | None
) -> Rgb:
    light = (pixels.astype(np.float32) @ LUMA)[:, :, None]
    share = np.float32(numbers["strength"])
    grey = np.rint(pixels * (1 - share) + light * share).astype(np.uint8)
    return _chosen(mask, grey, pixels)


def _spotlight(
    pixels: Rgb, mask: Mask, _: Sequence[Painted], numbers: dict[str, float], __: Colour | None
) -> Rgb:
    dark = np.rint(pixels * np.float32(1 - numbers["strength"])).astype(np.uint8)
    return _chosen(mask, dark, pixels)


def _pixelate(
    pixels: Rgb, mask: Mask, _: Sequence[Painted], numbers: dict[str, float], __: Colour | None
) -> Rgb:
    height, width = pixels.shape[:2]
    side = max(1, round(numbers["size"]))
    image = Image.fromarray(pixels)
    small = image.resize((-(-width // side), -(-height // side)), Image.Resampling.BOX)
    coarse = small.resize((small.width * side, small.height * side), Image.Resampling.NEAREST)
    return _chosen(mask, np.asarray(coarse)[:height, :width], pixels)


def _colour(
    pixels: Rgb,
    mask: Mask,
    objects: Sequence[Painted],
    numbers: dict[str, float],
    colour: Colour | None,
) -> Rgb:
    share = np.float32(numbers["opacity"])
    out = pixels.copy()
    painted = [Painted(mask, colour)] if colour else [p for p in objects if (p.mask & mask).any()]
    for part in painted or [Painted(mask, object_colour(1))]:
        where = part.mask & mask
        tint = np.array(part.colour, np.float32)
        out[where] = np.rint(out[where] * (1 - share) + tint * share).astype(np.uint8)
    return out


def _outline(
    pixels: Rgb,
    mask: Mask,
    objects: Sequence[Painted],
    numbers: dict[str, float],
    colour: Colour | None,
) -> Rgb:
    out = pixels.copy()
    for part in objects:
        out[_edge(part.mask, max(1, round(numbers["width"])))] = colour or part.colour
    return out


def _edge(mask: Mask, width: int) -> Mask:
    """The pixels outside a mask that are at most `width` from it."""
    grown = Image.fromarray(mask.astype(np.uint8) * 255).filter(
        ImageFilter.MaxFilter(2 * width + 1)
    )
    edge: Mask = (np.asarray(grown) > 0) & ~mask
    return edge


def _chosen(mask: Mask, changed: Rgb, pixels: Rgb) -> Rgb:
    return np.where(mask[:, :, None], changed, pixels).astype(np.uint8)


EFFECTS = {
    kind.name: kind
    for kind in (
        EffectKind("cutout", "Cut out", "background", (), _cutout),
        EffectKind("blur", "Blur", "background", (EffectParam("strength", 1, 40, 8),), _blur),
        EffectKind("grey", "Grey", "background", (EffectParam("strength", 0, 1, 1),), _grey),
        EffectKind("outline", "Outline", "object", (EffectParam("width", 1, 20, 4),), _outline),
        EffectKind(
            "spotlight",
            "Spotlight",
            "background",
            (EffectParam("strength", 0, 1, 0.7),),
            _spotlight,
        ),
        EffectKind("pixelate", "Pixelate", "object", (EffectParam("size", 2, 100, 16),), _pixelate),
        EffectKind("colour", "Colour", "object", (EffectParam("opacity", 0, 1, 0.5),), _colour),
    )
}
