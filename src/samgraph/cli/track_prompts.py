"""Prompts on the command line: `X,Y@FRAME:OBJECT`, boxes and mask files alike."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from samgraph.cli.options import Numbers
from samgraph.errors import ImageError, PromptError
from samgraph.jobs.prompts import Given
from samgraph.media.image.reading import read_label_image
from samgraph.predict.video.prompts import ObjectId

_PLACED = re.compile(r"(?P<value>.+?)(?:@(?P<frame>\d{1,9}))?(?::(?P<object>[^:@/\\.]+))?")
BINARY = (1, 255)


@dataclass(frozen=True, slots=True)
class Placed:
    """A value with the frame and the object it belongs to, where they were said."""

    value: Any
    frame: int | None
    object: ObjectId | None


class PlacedValue(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Numbers, or a path, with `@FRAME` and `:OBJECT` behind."""

    def __init__(self, value: click.ParamType) -> None:  # type: ignore[type-arg]  # as above
        self._value = value
        self.name = f"{value.name}[@FRAME][:OBJECT]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Placed:
        """The parts of the text."""
        if isinstance(value, Placed):
            return value
        found = _PLACED.fullmatch(str(value))
        if found is None:
            self.fail(f"`{value}` is not {self.name}", param, ctx)
        name = found["object"]
        return Placed(
            self._value.convert(found["value"], param, ctx),
            None if found["frame"] is None else int(found["frame"]),
            int(name) if name is not None and name.isdecimal() else name,
        )


POINT = PlacedValue(Numbers("X", "Y"))
BOX = PlacedValue(Numbers("X0", "Y0", "X1", "Y1"))
MASK = PlacedValue(click.Path(dir_okay=False))


def gathered(
    points: tuple[Placed, ...],
    negatives: tuple[Placed, ...],
    boxes: tuple[Placed, ...],
    masks: tuple[Placed, ...],
    start: int,
) -> dict[tuple[ObjectId, int], Given]:
    """Prompts by object and frame; without a frame they are for the first, without an object for 1.

    A mask file without an object, that has several numbers in it, has an object for each.

    Raises:
        PromptError: There is none, or an object on a frame has two boxes, two masks, or a mask and
            something else.
    """
    found: dict[tuple[ObjectId, int], Given] = {}

    def at(placed: Placed, name: ObjectId = 1) -> Given:
        frame = start if placed.frame is None else placed.frame
        chosen = name if placed.object is None else placed.object
        return found.setdefault((chosen, frame), Given())

    for places, label in ((points, 1), (negatives, 0)):
        for placed in places:
            at(placed).points.append(placed.value)
            at(placed).labels.append(label)
    for placed in boxes:
        if at(placed).box is not None:
            raise PromptError("an object has two boxes on one frame", got=str(placed.value))
        at(placed).box = placed.value
    for placed in masks:
        for name, mask in _masks(placed).items():
            given = at(placed, name)
            if not given.is_empty:
                raise PromptError(
                    "an object has a mask and another prompt on one frame",
                    got=f"`{placed.value}`",
                    hint="a mask is given alone",
                )
            given.mask = mask
    if not found:
        raise PromptError(
            "there is nothing to track", hint="say where the object is: --point X,Y or --box ..."
        )
    # Numbers in their order, then texts as they came.
    return dict(sorted(found.items(), key=lambda item: _order(item[0][0])))


def _order(name: ObjectId) -> tuple[bool, int]:
    return isinstance(name, str), name if isinstance(name, int) else 0


def _masks(placed: Placed) -> dict[ObjectId, NDArray[np.bool_]]:
    """The masks in a file, by object."""
    if not Path(placed.value).exists():
        raise ImageError(f"`{placed.value}` does not exist")
    labels = read_label_image(placed.value)
    values = [int(value) for value in np.unique(labels) if value]
    if not values:
        raise PromptError(f"`{placed.value}` marks nothing", got="0 at every pixel")
    if placed.object is not None or (len(values) < 2 and set(values) <= set(BINARY)):
        return {1: labels > 0}
    return {value: labels == value for value in values if value != 255}
