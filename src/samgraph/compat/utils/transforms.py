"""The reference's transforms: images into the model, coordinates, and masks back out.

Everything takes arrays or torch's tensors. What was given as one of torch's tensors comes back as
one, anything else as an array with their methods.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from samgraph.compat.host import to_host
from samgraph.compat.prompts import cleaned_logits
from samgraph.compat.tensor import Tensor, like, tensor
from samgraph.errors import PromptError
from samgraph.media.image.preprocess import MEAN, STD, resize_image, upscale_logits
from samgraph.media.image.reading import Rgb, read_image


class SAM2Transforms:
    """Resizing and scaling for a model whose input is `resolution` pixels wide and high."""

    def __init__(
        self,
        resolution: int,
        mask_threshold: float,
        max_hole_area: float = 0.0,
        max_sprinkle_area: float = 0.0,
    ) -> None:
        self.resolution, self.mask_threshold = resolution, mask_threshold
        self.max_hole_area, self.max_sprinkle_area = max_hole_area, max_sprinkle_area
        self.mean, self.std = list(MEAN), list(STD)

    def __call__(self, x: Any) -> Tensor:
        """An image as the model takes it: float32 [3, S, S]."""
        return tensor(resize_image(stored_pixels(x), self.resolution))

    def forward_batch(self, img_list: Sequence[Any]) -> Tensor:
        """Images as the model takes them: float32 [B, 3, S, S]."""
        return tensor(np.stack([np.asarray(self(image)) for image in img_list]))

    def transform_coords(
        self, coords: Any, normalize: bool = False, orig_hw: tuple[int, int] | None = None
    ) -> Any:
        """Points [..., 2] in pixels of the model's input.

        They are given as shares of the image, or with `normalize` in its pixels.
        """
        xy = np.asarray(to_host(coords))
        if normalize:
            if orig_hw is None:
                raise PromptError("`orig_hw` is needed to scale coordinates in pixels")
            height, width = orig_hw
            xy = xy / np.array([width, height], np.float32)
        return like(coords, xy * self.resolution)

    def transform_boxes(
        self, boxes: Any, normalize: bool = False, orig_hw: tuple[int, int] | None = None
    ) -> Any:
        """Boxes [B, 4] as corners [B, 2, 2] in pixels of the model's input."""
        corners = np.asarray(to_host(boxes)).reshape(-1, 2, 2)
        return self.transform_coords(like(boxes, corners), normalize, orig_hw)

    def postprocess_masks(self, masks: Any, orig_hw: tuple[int, int]) -> Any:
        """Logits [B, C, h, w], cleaned, at the size of the image: float32 [B, C, H, W]."""
        low = np.asarray(to_host(masks)).astype(np.float32)
        clean = cleaned_logits(low, self.mask_threshold, self.max_hole_area, self.max_sprinkle_area)
        return like(masks, upscale_logits(clean, (int(orig_hw[0]), int(orig_hw[1]))))


def stored_pixels(image: Any) -> Rgb:
    """Pixels as stored, uint8 [H, W, 3]: the reference ignores EXIF orientation."""
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"))
    return read_image(np.asarray(to_host(image)) if hasattr(image, "__array__") else image)
