"""Images and prompts as the model takes them, and masks at the size of the image."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.checkpoint.builtin import is_built_in
from samgraph.compat.build_sam import config_named
from samgraph.compat.host import to_host
from samgraph.compat.modeling.sam2_base import non_overlapping
from samgraph.compat.prompts import cleaned_logits
from samgraph.compat.tensor import Tensor, tensor
from samgraph.compat.transformers.encoding import (
    BatchEncoding,
    as_sizes,
    nested,
    padded,
    tensor_of,
)
from samgraph.compat.transformers.sources import weights_of
from samgraph.compat.utils.transforms import stored_pixels
from samgraph.errors import OptionError, PromptError
from samgraph.media.image.preprocess import resize_image, upscale_logits
from samgraph.models.loading import read_source, recognise, weights_file
from samgraph.models.nano.config import NANO

# The label of points that pad shorter lists, and their coordinates.
PAD = -10


class Sam2ImageProcessor:
    """Images into the model: squares of `size`, normalised; and masks back out."""

    def __init__(self, size: Any = 1024, **_: Any) -> None:
        side = size["height"] if isinstance(size, dict) else size
        self.size = {"height": int(side), "width": int(side)}
        self.mask_size = {"height": int(side) // 4, "width": int(side) // 4}

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **_: Any) -> Any:
        """The processor for a model by its name, file or folder; nothing is downloaded."""
        return cls(input_size(pretrained_model_name_or_path))

    def __call__(self, images: Any, **_: Any) -> BatchEncoding:
        """`pixel_values` float32 [B, 3, S, S] and `original_sizes` [B, 2] of one or more images."""
        pixels = [stored_pixels(image) for image in image_list(images)]
        side = self.size["height"]
        return BatchEncoding(
            pixel_values=tensor(np.stack([resize_image(image, side) for image in pixels])),
            original_sizes=tensor_of([image.shape[:2] for image in pixels], np.int64),
        )

    def post_process_masks(
        self,
        masks: Any,
        original_sizes: Any,
        mask_threshold: float = 0.0,
        binarize: bool = True,
        max_hole_area: float = 0.0,
        max_sprinkle_area: float = 0.0,
        apply_non_overlapping_constraints: bool = False,
        **_: Any,
    ) -> list[Tensor]:
        """Masks [..., H, W] of each image, from logits [..., h, w]; bool unless not binarized.

        Differs from the original: `max_hole_area` and `max_sprinkle_area` have their effect.
        """
        out = []
        for logits, size_hw in zip(masks, as_sizes(original_sizes), strict=False):
            low = np.asarray(to_host(logits), np.float32)
            clean = cleaned_logits(low, mask_threshold, max_hole_area, max_sprinkle_area)
            large = upscale_logits(clean, size_hw)
            if apply_non_overlapping_constraints:
                large = np.asarray(non_overlapping(large))
            out.append(tensor(large > mask_threshold if binarize else large))
        return out


Sam2ImageProcessorFast = Sam2ImageProcessor  # the name in version 4 of the library


class Sam2Processor:
    """An image processor that also scales prompts to the model's input."""

    def __init__(
        self,
        image_processor: Any = None,
        target_size: int | None = None,
        point_pad_value: int = PAD,
        **_: Any,
    ) -> None:
        self.image_processor = image_processor or Sam2ImageProcessor(target_size or 1024)
        self.target_size = target_size or self.image_processor.size["height"]
        self.point_pad_value = point_pad_value

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        """The processor for a model by its name, file or folder; nothing is downloaded."""
        return cls(Sam2ImageProcessor.from_pretrained(pretrained_model_name_or_path))

    def __call__(
        self,
        images: Any = None,
        segmentation_maps: Any = None,
        input_points: Any = None,
        input_labels: Any = None,
        input_boxes: Any = None,
        original_sizes: Any = None,
        return_tensors: str | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Inputs of the model: pixels, and prompts scaled to its input.

        Points are nested [image, object, point, xy], labels [image, object, point], boxes [image,
        object, xyxy]; lists of different lengths are padded with points that are ignored.
        """
        if segmentation_maps is not None:
            raise OptionError("`segmentation_maps` are for training, which is not done here")
        if images is None and original_sizes is None:
            raise PromptError("either `images` or `original_sizes` must be given")
        if images is not None:
            encoding = self.image_processor(images)
        else:
            encoding = BatchEncoding(original_sizes=tensor_of(as_sizes(original_sizes), np.int64))
        sizes = as_sizes(encoding["original_sizes"])
        encoding.update(self._prompts(sizes, input_points, input_labels, input_boxes))
        return encoding

    def post_process_masks(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Masks at the size of each image; see `Sam2ImageProcessor.post_process_masks`."""
        found: list[Tensor] = self.image_processor.post_process_masks(*args, **kwargs)
        return found

    def _prompts(
        self, sizes: list[tuple[int, int]], points: Any, labels: Any, boxes: Any
    ) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        xy, kinds = nested(points, 4, "points", 2), nested(labels, 3, "labels", None)
        corners = nested(boxes, 3, "boxes", 4)
        if xy is not None:
            given = padded(xy, 4, self.point_pad_value)
            is_pad = (given == self.point_pad_value).any(axis=-1, keepdims=True)
            scaled = np.where(is_pad, given, self._scaled(given, sizes))
            found["input_points"] = tensor(scaled.astype(np.float32))
        if kinds is not None:
            found["input_labels"] = tensor_of(padded(kinds, 3, self.point_pad_value), np.int64)
        if xy is not None and kinds is not None:
            shapes = found["input_points"].shape[:3], found["input_labels"].shape
            if shapes[0] != shapes[1]:
                raise PromptError(
                    "points and labels do not fit", got=f"{list(shapes[0])} and {list(shapes[1])}"
                )
        if corners is not None:
            if len({len(row) for row in corners}) > 1:
                raise PromptError(
                    "every image needs the same number of boxes",
                    got=", ".join(str(len(row)) for row in corners),
                )
            given = padded(corners, 3, 0).reshape(len(corners), -1, 2, 2)
            scaled = self._scaled(given, sizes).astype(np.float32)
            found["input_boxes"] = tensor(scaled.reshape(len(corners), -1, 4))
        return found

    def _scaled(
        self, xy: NDArray[np.float32], sizes: Sequence[tuple[int, int]]
    ) -> NDArray[np.float32]:
        """Coordinates [image, ..., 2] of images as coordinates of the model's input."""
        if len(sizes) not in (1, len(xy)):
            raise PromptError(
                "there must be prompts for each image", got=f"{len(xy)}", expected=f"{len(sizes)}"
            )
        scales = np.array([(self.target_size / w, self.target_size / h) for h, w in sizes])
        return xy * scales.reshape(-1, *(1,) * (xy.ndim - 2), 2).astype(np.float32)


def image_list(images: Any) -> list[Any]:
    """One image or several, as a list; an array or tensor [B, ...] holds several."""
    if isinstance(images, Image.Image | str):
        return [images]
    host = to_host(images)
    if isinstance(host, np.ndarray):
        return [host] if host.ndim < 4 else list(host)
    return list(images)


def input_size(source: Any) -> int:
    """The side of a model's input, by its name, its file, or its folder; nothing is downloaded."""
    weights = weights_of(source)
    if is_built_in(weights):
        return NANO.image_size
    if isinstance(weights, str) and weights_file(weights) is None:
        return config_named(weights).image_size
    return int(recognise(read_source(weights))[1].image_size)
