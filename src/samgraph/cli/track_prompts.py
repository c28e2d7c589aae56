"""Prompts on the command line: `X,Y@FRAME:OBJECT`, boxes and mask files likewise."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from samgraph.cli.option_groups import Decorator, click_options, option_group
from samgraph.cli.options import FilePath, Numbers
from samgraph.errors import ImageError, PromptError
from samgraph.jobs.prompts import FramePrompt, Prompts
from samgraph.media.image.reading import read_label_image
from samgraph.predict.video.prompts import ObjectId
from samgraph.untrusted.text import shown

_ADDRESSED = re.compile(r"(?P<value>.+?)(?:@(?P<frame>\d{1,9}))?(?::(?P<object>[^:@/\\.]+))?")
BINARY = (1, 255)


@dataclass(frozen=True, slots=True)
class Addressed:
    """A value with its frame index and object, where they were named."""

    value: Any
    frame: int | None
    object: ObjectId | None


class AddressedValue(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Numbers, or a path, followed by `@FRAME`, or another `place`, and `:OBJECT`."""

    def __init__(self, value: click.ParamType, place: str) -> None:  # type: ignore[type-arg]
        self._value = value
        self.name = f"{value.name}[@{place}][:OBJECT]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Addressed:
        """The parts of the text."""
        if isinstance(value, Addressed):
            return value
        found = _ADDRESSED.fullmatch(str(value))
        if found is None:
            self.fail(f"`{value}` is not {self.name}", param, ctx)
        name = found["object"]
        return Addressed(
            self._value.convert(found["value"], param, ctx),
            None if found["frame"] is None else int(found["frame"]),
            int(name) if name is not None and name.isdecimal() else name,
        )


@dataclass(frozen=True, slots=True)
class VideoPrompts:
    """The prompts on the command line."""

    points: tuple[Addressed, ...] = ()
    negatives: tuple[Addressed, ...] = ()
    boxes: tuple[Addressed, ...] = ()
    masks: tuple[Addressed, ...] = field(default=(), repr=False)

    def by_object_and_frame(self, start: int) -> Prompts:
        """All prompts; by default they are for frame `start` and object 1.

        A mask file without an object that has several values is a mask per value. Objects are in
        the order of their numbers, then texts as they came.

        Raises:
            PromptError: There is no prompt, or an object has two boxes, two masks, or a mask and
                something else on one frame.
        """
        found: dict[tuple[ObjectId, int], FramePrompt] = {}
        for given, name, more in self._given():
            frame = start if given.frame is None else given.frame
            key = (name if given.object is None else given.object), frame
            found[key] = _joined(found.get(key, FramePrompt()), more, given)
        if not found:
            raise PromptError(
                "there is nothing to track",
                hint="say where the object is: --point X,Y or --box ...",
            )
        return dict(sorted(found.items(), key=lambda item: _order(item[0][0])))

    def _given(self) -> Iterator[tuple[Addressed, ObjectId, FramePrompt]]:
        """Every prompt with the object it is for where none was named."""
        for clicks, label in ((self.points, 1), (self.negatives, 0)):
            for given in clicks:
                yield given, 1, FramePrompt((given.value,), (label,))
        for given in self.boxes:
            yield given, 1, FramePrompt(box=given.value)
        for given in self.masks:
            for name, mask in _read_masks(given).items():
                yield given, name, FramePrompt(mask=mask)


def _options(place: str) -> Decorator:
    """The options of prompts that are each at a frame, or at another `place`."""
    point = AddressedValue(Numbers("X", "Y"), place)
    box = AddressedValue(Numbers("X0", "Y0", "X1", "Y1"), place)
    mask = AddressedValue(FilePath(dir_okay=False, path_type=str), place)
    return option_group(
        "prompts",
        VideoPrompts,
        *click_options(point),
        click.option("--box", "boxes", multiple=True, type=box, help="A box around the object."),
        click.option(
            "--mask",
            "masks",
            multiple=True,
            type=mask,
            help="A mask as an image; with several values in it, an object per value.",
        ),
    )


frame_prompt_options, slice_prompt_options = _options("FRAME"), _options("SLICE")


def _joined(before: FramePrompt, more: FramePrompt, given: Addressed) -> FramePrompt:
    """A prompt with another for the same object and frame."""
    if before.box is not None and more.box is not None:
        raise PromptError("an object has two boxes on one frame", got=str(given.value))
    is_empty = not before.points and before.box is None and before.mask is None
    if (more.mask is not None and not is_empty) or before.mask is not None:
        raise PromptError(
            "an object has a mask and another prompt on one frame",
            got=f"`{given.value}`",
            hint="a mask is given alone",
        )
    return replace(
        before,
        points=before.points + more.points,
        labels=before.labels + more.labels,
        box=before.box if more.box is None else more.box,
        mask=more.mask,
    )


def _order(name: ObjectId) -> tuple[bool, int]:
    return isinstance(name, str), name if isinstance(name, int) else 0


def _read_masks(given: Addressed) -> dict[ObjectId, NDArray[np.bool_]]:
    """The masks in a file, by object."""
    if not os.path.exists(given.value):
        raise ImageError(f"`{shown(given.value)}` does not exist")
    labels = read_label_image(given.value)
    values = [int(value) for value in np.unique(labels) if value]
    if not values:
        raise PromptError(f"`{given.value}` marks nothing", got="0 at every pixel")
    if given.object is not None or (len(values) < 2 and set(values) <= set(BINARY)):
        return {1: labels > 0}
    return {value: labels == value for value in values if value != 255}
