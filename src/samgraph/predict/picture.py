"""An image as results know it: its name, its size, and its pixels where they are at hand."""

import os
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from samgraph.errors import OutputError
from samgraph.media.image.reading import Rgb


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """An image, upright."""

    name: str
    size_hw: tuple[int, int]
    pixels: Rgb | None = None

    @property
    def size_text(self) -> str:
        """Width and height, as people write them."""
        height, width = self.size_hw
        return f"{width}x{height}"

    def need_pixels(self) -> Rgb:
        """The pixels, which an image that was read from an embedding does not have.

        Raises:
            OutputError: There are none.
        """
        if self.pixels is None:
            raise OutputError(
                f"the pixels of `{self.name}` are not at hand",
                got="an embedding",
                hint="give both: `model.image(photo, embedding=saved)`",
            )
        return self.pixels


def name_of(source: Any) -> str:
    """What an image is called in the files that results write: its file name, or `image`."""
    label = source if isinstance(source, str | os.PathLike) else getattr(source, "filename", "")
    label = label or getattr(source, "name", "")
    text = os.fspath(label) if isinstance(label, str | os.PathLike) else ""
    name = PurePath(text).name if isinstance(text, str) else ""
    return name or "image"
