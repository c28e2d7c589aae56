"""Results: masks, boxes and scores of one image, which draw, save and describe themselves.

Shapes: N objects, H and W of the image.
"""

import json
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.compat.host import to_host
from samgraph.compat.tensor import Tensor, tensor
from samgraph.media.drawing import draw_boxes, overlay
from samgraph.media.files import unwritable, write_atomically
from samgraph.media.image.reading import Rgb
from samgraph.media.image.reading import encode_image as encode_picture
from samgraph.media.mask.geometry import masks_to_boxes
from samgraph.media.mask.polygons import join_rings, mask_to_polygons

_FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".bmp": "BMP"}


class Rows:
    """Numbers per object, for an image of `orig_shape`, with the methods of tensors."""

    def __init__(self, data: Any, orig_shape: tuple[int, int]) -> None:
        self.data: Tensor = tensor(data)
        self.orig_shape = orig_shape

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Self:
        rows = np.atleast_1d(np.arange(len(self))[to_host(index)])
        return type(self)(np.asarray(self.data)[rows], self.orig_shape)

    def __iter__(self) -> Iterator[Self]:
        return (self[index] for index in range(len(self)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `data`."""
        shape: tuple[int, ...] = self.data.shape
        return shape

    def numpy(self) -> Self:
        """Itself: arrays of numpy."""
        return self

    def cpu(self) -> Self:
        """Itself: in main memory."""
        return self

    cuda = to = cpu


class Masks(Rows):
    """Masks: `data` is bool [N, H, W]."""

    @property
    def masks(self) -> Tensor:
        """As `data`."""
        return self.data

    @cached_property
    def xy(self) -> list[NDArray[np.float32]]:
        """The outline of each mask in pixels, [K, 2]; its parts are joined by slits."""
        return [_outline(mask) for mask in np.asarray(self.data)]

    @cached_property
    def xyn(self) -> list[NDArray[np.float32]]:
        """The outlines as shares of the image's width and height."""
        height, width = self.orig_shape
        sides = np.array([width, height], np.float32)
        return [np.divide(ring, sides, dtype=np.float32) for ring in self.xy]


class Boxes(Rows):
    """Boxes: `data` is float32 [N, 6], corners, score and class; or [N, 7], an id before them."""

    @property
    def xyxy(self) -> Tensor:
        """Left, top, right, bottom: [N, 4]."""
        return tensor(self.data[:, :4])

    @property
    def xywh(self) -> Tensor:
        """Centre, width and height: [N, 4]."""
        boxes = np.asarray(self.xyxy)
        low, high = boxes[:, :2], boxes[:, 2:]
        return tensor(np.concatenate([(low + high) / 2, high - low], axis=1))

    @property
    def xyxyn(self) -> Tensor:
        """`xyxy` as shares of the image."""
        return tensor(np.asarray(self.xyxy) / self._sides)

    @property
    def xywhn(self) -> Tensor:
        """`xywh` as shares of the image."""
        return tensor(np.asarray(self.xywh) / self._sides)

    @property
    def conf(self) -> Tensor:
        """The score of each mask: [N]."""
        return tensor(self.data[:, -2])

    @property
    def cls(self) -> Tensor:
        """The class of each object, which is its number: [N]."""
        return tensor(self.data[:, -1])

    @property
    def is_track(self) -> bool:
        """Whether objects have ids."""
        return bool(self.data.shape[1] == 7)

    @property
    def id(self) -> Tensor | None:
        """The id of each tracked object: [N]."""
        return tensor(self.data[:, 4]) if self.is_track else None

    @property
    def _sides(self) -> NDArray[np.float32]:
        height, width = self.orig_shape
        return np.array([width, height, width, height], np.float32)


class Results:
    """What was found in one image, or on one frame."""

    probs = keypoints = obb = None

    def __init__(
        self,
        orig_img: NDArray[np.uint8],
        path: str,
        masks: NDArray[np.bool_],
        scores: NDArray[np.float32],
        ids: NDArray[np.float32] | None = None,
    ) -> None:
        self.orig_img, self.path = orig_img, path  # blue, green, red
        self.orig_shape: tuple[int, int] = (orig_img.shape[0], orig_img.shape[1])
        numbers = np.arange(len(masks), dtype=np.float32)
        columns = [] if ids is None else [ids[:, None]]
        corners = masks_to_boxes(masks).reshape(-1, 4).astype(np.float32)
        rows = np.concatenate([corners, *columns, scores[:, None], numbers[:, None]], axis=1)
        self.masks: Masks | None = Masks(masks, self.orig_shape) if len(masks) else None
        self.boxes = Boxes(rows.astype(np.float32), self.orig_shape)
        self.names = {i: str(i) for i in range(len(masks))}
        self.speed: dict[str, float | None] = dict.fromkeys(
            ("preprocess", "inference", "postprocess")
        )

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: Any) -> "Results":
        rows = np.atleast_1d(np.arange(len(self))[to_host(index)])
        boxes = self.boxes[rows]
        ids = None if boxes.id is None else np.asarray(boxes.id)
        return Results(self.orig_img, self.path, self._masks[rows], np.asarray(boxes.conf), ids)

    def __repr__(self) -> str:
        height, width = self.orig_shape
        return f"<{self.path}, {width}x{height}: {self.verbose()}>"

    def __iter__(self) -> Iterator["Results"]:
        return (self[index] for index in range(len(self)))

    def cpu(self) -> Self:
        """Itself: everything is in main memory."""
        return self

    numpy = cpu

    def cuda(self) -> Self:
        """Itself: everything is in main memory."""
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Itself: everything is in main memory."""
        return self

    def plot(
        self,
        conf: bool = True,
        pil: bool = False,
        img: NDArray[np.uint8] | None = None,
        boxes: bool = True,
        masks: bool = True,
        **_: Any,
    ) -> Any:
        """The image with masks and boxes drawn: uint8 [H, W, 3], blue, green, red; or Pillow's."""
        drawn: Rgb = np.ascontiguousarray((self.orig_img if img is None else img)[..., ::-1])
        numbers = [round(n) + 1 for n in self.boxes.cls.tolist()]
        if self.boxes.id is not None:
            numbers = [round(n) for n in self.boxes.id.tolist()]
        if masks and self.masks is not None:
            drawn = overlay(drawn, self._masks, object_ids=numbers)
        if boxes and len(self):
            corners = [tuple(row) for row in self.boxes.xyxy.tolist()]
            drawn = draw_boxes(drawn, corners, numbers)
        return Image.fromarray(drawn) if pil else np.ascontiguousarray(drawn[..., ::-1])

    def save(self, filename: str | os.PathLike[str] | None = None, *_: Any, **kwargs: Any) -> str:
        """Write the drawn image; returns the path, by default `results_` and the image's name."""
        path = Path(filename or f"results_{Path(self.path).name or 'image.jpg'}")
        drawn = self.plot(**kwargs)[..., ::-1]
        format = _FORMATS.get(path.suffix.lower(), "PNG")
        _write(path, encode_picture(np.ascontiguousarray(drawn), format))
        return str(path)

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Open the drawn image in the system's viewer."""
        self.plot(pil=True).show()

    def save_txt(self, txt_file: str | os.PathLike[str], save_conf: bool = False) -> str:
        """Add a line per object: its class, its outline as shares of the image, and its score."""
        lines = []
        for i, ring in enumerate([] if self.masks is None else self.masks.xyn):
            numbers = [str(i), *(f"{share:.6g}" for share in ring.ravel())]
            if save_conf:
                numbers.append(f"{float(self.boxes.conf[i]):.6g}")
            lines.append(" ".join(numbers) + "\n")
        path = Path(txt_file)
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        _write(path, (before + "".join(lines)).encode("ascii"))
        return str(path)

    def save_crop(
        self, save_dir: str | os.PathLike[str], file_name: str | os.PathLike[str] = "im.jpg"
    ) -> None:
        """Write what is in each box, in a folder per class."""
        for i, (left, top, right, bottom) in enumerate(self.boxes.xyxy.long().tolist()):
            crop = self.orig_img[top:bottom, left:right, ::-1]
            if crop.size:
                path = Path(save_dir) / self.names[i] / Path(file_name).with_suffix(".jpg").name
                _write(path, encode_picture(np.ascontiguousarray(crop), "JPEG"))

    def summary(self, normalize: bool = False, decimals: int = 5) -> list[dict[str, Any]]:
        """Every object as a dict: name, class, confidence, box and outline."""
        boxes = self.boxes.xyxyn if normalize else self.boxes.xyxy
        rings = [] if self.masks is None else self.masks.xyn if normalize else self.masks.xy
        found = []
        for i, (corners, ring) in enumerate(zip(boxes.tolist(), rings, strict=True)):
            sides = dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True))
            xs, ys = (np.round(ring[:, axis], decimals).tolist() for axis in (0, 1))
            found.append(
                {
                    "name": self.names[i],
                    "class": i,
                    "confidence": round(float(self.boxes.conf[i]), decimals),
                    "box": {side: round(value, decimals) for side, value in sides.items()},
                    "segments": {"x": xs, "y": ys},
                }
            )
        return found

    def to_json(self, normalize: bool = False, decimals: int = 5) -> str:
        """`summary` as JSON."""
        return json.dumps(self.summary(normalize, decimals), indent=2)

    tojson = to_json

    def verbose(self) -> str:
        """One line about the image."""
        return f"{len(self)} object{'s' * (len(self) != 1)}"

    @property
    def _masks(self) -> NDArray[np.bool_]:
        if self.masks is None:
            return np.zeros((0, *self.orig_shape), np.bool_)
        return np.asarray(self.masks.data)


def _write(path: Path, data: bytes) -> None:
    """Write a file, and the folders above it where they are missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    write_atomically(path, data)


def _outline(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    rings = [ring for polygon in mask_to_polygons(mask) for ring in polygon.rings]
    return (join_rings(rings) if rings else np.zeros((0, 2))).astype(np.float32)
