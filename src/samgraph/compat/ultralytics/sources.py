"""What a call is given: images, frames and prompts, in the shapes ultralytics takes."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.compat.host import to_host
from samgraph.errors import ImageError, PromptError
from samgraph.media.image.reading import Rgb, read_image
from samgraph.media.video.frames import IMAGE_SUFFIXES, image_files, open_frames

Prompts = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """An image or a frame: its path, its pixels uint8 RGB, and the name to save it under."""

    path: str
    rgb: Rgb
    name: str


def images_of(source: Any) -> Iterator[Pixels]:
    """Every image or frame of a source."""
    if source is None:
        raise ImageError("there is no image", hint="give `source`")
    if isinstance(source, list | tuple):
        for item in source:
            yield from images_of(item)
        return
    if not isinstance(source, str | os.PathLike):
        label = getattr(source, "filename", "") or "image0.jpg"
        yield Pixels(label, _pixels(source), Path(label).stem)
        return
    path = Path(source)
    if "://" in str(source):
        raise ImageError(f"`{source}` is an address", hint="download it, and give the file")
    if path.is_dir():
        for file in image_files(path):
            yield Pixels(str(file), read_image(file), file.stem)
    elif path.suffix.lower() in IMAGE_SUFFIXES:
        yield Pixels(str(path), read_image(path), path.stem)
    else:
        with open_frames(path) as frames:
            for index in range(frames.length or 0):
                yield Pixels(str(path), frames.frame(index), f"{path.stem}_{index + 1}")


def video_of(source: Any) -> Any:
    """A source of frames: a path as it is, frames in RGB."""
    if isinstance(source, str | os.PathLike):
        return source
    return [one.rgb for one in images_of(source)]


def read_prompts(points: Any, labels: Any, bboxes: Any, masks: Any = None) -> list[Prompts]:
    """A prompt per object: points [K, 2], labels [K], box [4] and mask [H, W], where given.

    Points [x, y] are one click; [N, 2] are N objects with a click each; [N, K, 2], or lists of
    different lengths, are the clicks of N objects. Labels are 1 where they are omitted.
    """
    found: dict[str, list[Any]] = {}
    if bboxes is not None:
        found["box"] = list(_numbers(bboxes, "bboxes").reshape(-1, 4))
    if points is not None:
        found["points"] = _clicks(points)
        given = np.ones(1) if labels is None else to_host(labels)
        found["labels"] = _labels(given, [len(clicks) for clicks in found["points"]])
    if masks is not None:
        stack = np.asarray(to_host(masks)).astype(np.bool_)
        found["mask"] = list(stack.reshape(-1, *stack.shape[-2:]))
    counts = {name: len(values) for name, values in found.items()}
    if len(set(counts.values())) > 1:
        raise PromptError(
            "it is not clear how many objects are asked for",
            got=", ".join(f"{count} for {name}" for name, count in counts.items()),
        )
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def _clicks(points: Any) -> list[NDArray[np.float32]]:
    host = to_host(points)
    first = host[0] if isinstance(host, list | tuple) and host else None
    if isinstance(first, list | tuple) and first and not np.isscalar(first[0]):
        return [_numbers(clicks, "points").reshape(-1, 2) for clicks in host]
    array = _numbers(host, "points")
    if array.ndim > 3 or array.shape[-1:] != (2,):
        raise PromptError("points are pairs of x and y", got=f"shape {list(array.shape)}")
    return list(array) if array.ndim == 3 else list(array.reshape(-1, 1, 2))


def _labels(labels: Any, lengths: list[int]) -> list[NDArray[np.int64]]:
    """Labels of each object's clicks."""
    flat: list[int] = []
    for item in labels if isinstance(labels, list | tuple) else np.asarray(labels).ravel():
        flat += np.asarray(to_host(item)).astype(np.int64).ravel().tolist()
    if len(flat) == 1:
        flat *= sum(lengths)
    if len(flat) != sum(lengths):
        raise PromptError(
            "every point needs a label", got=f"{sum(lengths)} points, {len(flat)} labels"
        )
    ends = np.cumsum(lengths)[:-1]
    return list(np.split(np.array(flat, np.int64), ends))


def _numbers(values: Any, what: str) -> NDArray[np.float32]:
    try:
        return np.asarray(to_host(values), np.float32)
    except (TypeError, ValueError) as error:
        raise PromptError(f"`{what}` are not numbers", got=type(values).__name__) from error


def _pixels(image: Any) -> Rgb:
    """Pixels in RGB; arrays have the order of OpenCV: blue, green, red."""
    if isinstance(image, Image.Image):
        return read_image(image)
    array = read_image(np.asarray(to_host(image)))
    return np.ascontiguousarray(array[..., ::-1])
