"""The reference's image predictor: its methods, shapes, dtypes and order of results.

    predictor = SAM2ImagePredictor(build_sam2("configs/sam2.1/sam2.1_hiera_t.yaml", "weights.pt"))
    predictor.set_image(image)
    masks, scores, logits = predictor.predict(point_coords=[[500, 375]], point_labels=[1])

`predict` gives plain arrays, as the original does; what is a tensor there has a tensor's methods
here (`samgraph.compat.tensor`). Prompts may be torch's tensors.

Differs from the original: `max_hole_area` and `max_sprinkle_area` work without its CUDA extension.
`samgraph.load(...).image(...)` is samgraph's own interface to the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.feature_maps import features_of, maps_of
from samgraph.compat.host import device_named, to_host
from samgraph.compat.modeling.sam2_base import core_of
from samgraph.compat.prompts import cleaned_logits, prompt_batch
from samgraph.compat.tensor import Tensor, tensor
from samgraph.compat.utils.transforms import SAM2Transforms, stored_pixels
from samgraph.errors import ImageError, PromptError
from samgraph.media.image.preprocess import upscale_logits, upscale_masks
from samgraph.media.image.reading import Rgb
from samgraph.models.family import Features, SegmentationModel
from samgraph.predict.features import embeddings
from samgraph.predict.image import decoding
from samgraph.predict.image.encoded import EncodedImage, encode_pixels
from samgraph.predict.image.result import LOGIT_LIMIT
from samgraph.predict.output import Picture
from samgraph.predict.prompts import PromptBatch, join

Floats = NDArray[np.float32]
Found = tuple[Floats, Floats, Floats]


class NotSetError(ImageError, RuntimeError):
    """There is no image to predict on; a RuntimeError, as in the reference."""


class SAM2ImagePredictor:
    """The reference's predictor on samgraph's model."""

    def __init__(
        self,
        sam_model: Any,
        mask_threshold: float = 0.0,
        max_hole_area: float = 0.0,
        max_sprinkle_area: float = 0.0,
        **kwargs: Any,
    ) -> None:
        self.model = sam_model
        self.mask_threshold = mask_threshold
        self.max_hole_area, self.max_sprinkle_area = max_hole_area, max_sprinkle_area
        self._transforms = SAM2Transforms(
            self.core.config.image_size, mask_threshold, max_hole_area, max_sprinkle_area
        )
        self._falls_back = bool(getattr(sam_model, "falls_back", True))
        self.reset_predictor()

    @classmethod
    def from_pretrained(cls, model_id: str, **kwargs: Any) -> "SAM2ImagePredictor":
        """A predictor by the name of its repository, such as `facebook/sam2.1-hiera-tiny`."""
        from samgraph.compat.build_sam import build_sam2_hf

        own = ("mask_threshold", "max_hole_area", "max_sprinkle_area")
        rest = {name: value for name, value in kwargs.items() if name not in own}
        return cls(build_sam2_hf(model_id, **rest), **kwargs)

    @property
    def core(self) -> SegmentationModel:
        """The model that runs."""
        return core_of(self.model)

    @property
    def device(self) -> Any:
        """Where the model runs; results are in main memory."""
        return device_named(str(self.core.session.device))

    def set_image(self, image: Any) -> None:
        """Encode an image: an RGB array [H, W, 3] of 8 bits, or a Pillow image as stored."""
        self.reset_predictor()
        self._encode([stored_pixels(image)])

    def set_image_batch(self, image_list: list[Any]) -> None:
        """Encode several images, for `predict_batch`."""
        self.reset_predictor()
        if not isinstance(image_list, list) or not image_list:
            raise ImageError(
                "a batch is a list of images", got=type(image_list).__name__, expected="a list"
            )
        self._encode([stored_pixels(image) for image in image_list])
        self._is_batch = True

    def predict(
        self,
        point_coords: Any = None,
        point_labels: Any = None,
        box: Any = None,
        mask_input: Any = None,
        multimask_output: bool = True,
        return_logits: bool = False,
        normalize_coords: bool = True,
    ) -> Found:
        """Masks [C, H, W] of 0 and 1, scores [C], low-resolution logits [C, L, L], all float32.

        Several prompts at once, boxes [B, 4] or points [B, N, 2], add a leading dimension B.
        """
        image = self._image()
        batch = self._prompts(
            image, point_coords, point_labels, box, mask_input, is_scaled=not normalize_coords
        )
        predictions = image.decode(batch, multimask=multimask_output)
        return self._found(predictions, image.size_hw, return_logits=return_logits)

    def predict_batch(
        self,
        point_coords_batch: Sequence[Any] | None = None,
        point_labels_batch: Sequence[Any] | None = None,
        box_batch: Sequence[Any] | None = None,
        mask_input_batch: Sequence[Any] | None = None,
        multimask_output: bool = True,
        return_logits: bool = False,
        normalize_coords: bool = True,
    ) -> tuple[list[Floats], list[Floats], list[Floats]]:
        """What `predict` gives, for each image of the batch; the decoder runs on all together."""
        if not self._is_batch:
            raise NotSetError("no batch is set", hint="call `set_image_batch` first")
        given = (point_coords_batch, point_labels_batch, box_batch, mask_input_batch)
        batches = [
            self._prompts(
                image,
                *(_at(values, index, len(self._images)) for values in given),
                is_scaled=not normalize_coords,
            )
            for index, image in enumerate(self._images)
        ]
        pairs = list(zip(self._images, batches, strict=True))
        predictions = decoding.decode(
            self.core,
            [image.embedding for image, batch in pairs for _ in range(len(batch))],
            join(batches),
            multimask=multimask_output,
            falls_back=self._falls_back,
        )
        found, start = [], 0
        for image, batch in pairs:
            own = predictions.part(start, start + len(batch))
            found.append(self._found(own, image.size_hw, return_logits=return_logits))
            start += len(batch)
        masks, scores, logits = (list(column) for column in zip(*found, strict=True))
        return masks, scores, logits

    def _predict(
        self,
        point_coords: Any,
        point_labels: Any,
        boxes: Any = None,
        mask_input: Any = None,
        multimask_output: bool = True,
        return_logits: bool = False,
        img_idx: int = -1,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Masks [B, C, H, W], scores [B, C], low-resolution logits [B, C, L, L] of one image.

        Prompts are in pixels of the model's input, as `_transforms` gives them. Masks are bool.
        """
        image = self._image(img_idx)
        sizes = (self.core.config.image_size, self.core.config.mask_size)
        batch = prompt_batch(point_coords, point_labels, boxes, mask_input, None, sizes)
        found = image.decode(batch, multimask=multimask_output)
        masks, scores, low = self._sized(found, image.size_hw, return_logits=return_logits)
        return tensor(masks), tensor(scores), tensor(low)

    def _prep_prompts(
        self,
        point_coords: Any,
        point_labels: Any,
        box: Any,
        mask_logits: Any,
        normalize_coords: bool,
        img_idx: int = -1,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Mask, points, labels and boxes as `_predict` takes them: in pixels of the model's input.

        Points [B, N, 2], labels [B, N], boxes [B, 2, 2], mask [B, 1, L, L]; None where not given.
        """
        points = labels = boxes = masks = None
        size_hw = self._image(img_idx).size_hw
        if point_coords is not None:
            if point_labels is None:
                raise PromptError("`point_labels` must be given with `point_coords`")
            floats = np.asarray(to_host(point_coords), np.float32)
            points = self._transforms.transform_coords(floats, normalize_coords, size_hw)
            labels = tensor(np.asarray(to_host(point_labels), np.int32))
            if points.ndim == 2:
                points, labels = points[None], labels[None]
        if box is not None:
            floats = np.asarray(to_host(box), np.float32)
            boxes = self._transforms.transform_boxes(floats, normalize_coords, size_hw)
        if mask_logits is not None:
            masks = tensor(np.asarray(to_host(mask_logits), np.float32))
            masks = masks[None] if masks.ndim == 3 else masks
        return masks, points, labels, boxes

    def get_image_embedding(self) -> Tensor:
        """The embedding [B, C, E, E] with `no_mem_embed` added, as in the reference."""
        self._image()
        return maps_of(self.core, self._encoded)[-1]

    def reset_predictor(self) -> None:
        """Forget the image."""
        self._images: list[EncodedImage] = []
        self._is_batch = False
        self._given: tuple[Any, Any] = (None, None)

    @property
    def _is_image_set(self) -> bool:
        return bool(self._images)

    @_is_image_set.setter
    def _is_image_set(self, is_set: bool) -> None:
        if not is_set:
            self.reset_predictor()

    @property
    def _orig_hw(self) -> list[tuple[int, int]] | None:
        """Height and width of each image; can be set, together with `_features`."""
        return [image.size_hw for image in self._images] or None

    @_orig_hw.setter
    def _orig_hw(self, sizes: Any) -> None:
        self._restore(self._given[0], sizes)

    @property
    def _features(self) -> dict[str, Any] | None:
        """The feature maps under the reference's names; they can be kept, and set again."""
        if not self._images:
            return None
        *fine, embedding = maps_of(self.core, self._encoded)
        return {"image_embed": embedding, "high_res_feats": fine}

    @_features.setter
    def _features(self, maps: dict[str, Any] | None) -> None:
        self._restore(maps, self._given[1])

    @property
    def _encoded(self) -> list[Features]:
        return [image.embedding.features for image in self._images]

    def _restore(self, maps: dict[str, Any] | None, sizes: Any) -> None:
        """Images from feature maps that were computed before, once their sizes are known, too."""
        self._given = (maps, sizes)
        if maps is None or sizes is None:
            return
        features = features_of(self.core, [*maps["high_res_feats"], maps["image_embed"]])
        sizes_hw = [(int(height), int(width)) for height, width in sizes]
        made = embeddings(self.core, features, sizes_hw, ["image"] * len(sizes_hw))
        self._images = [
            EncodedImage(self.core, Picture("image", e.size_hw), e, falls_back=self._falls_back)
            for e in made
        ]

    def _image(self, index: int = -1) -> EncodedImage:
        """The image to predict on; the last image of a batch, as in the reference."""
        if not self._images:
            raise NotSetError("no image is set", hint="call `set_image` first")
        if not -len(self._images) <= index < len(self._images):
            raise PromptError(
                f"there is no image {index}", expected=f"0 to {len(self._images) - 1}"
            )
        return self._images[index]

    def _encode(self, images: list[Rgb]) -> None:
        pictures = [Picture("image", (image.shape[0], image.shape[1]), image) for image in images]
        self._images = [
            EncodedImage(self.core, picture, embedding, falls_back=self._falls_back)
            for picture, embedding in zip(pictures, encode_pixels(self.core, pictures), strict=True)
        ]

    def _prompts(
        self, image: EncodedImage, points: Any, labels: Any, box: Any, mask: Any, *, is_scaled: bool
    ) -> PromptBatch:
        size_hw = (1, 1) if is_scaled else image.size_hw
        config = self.core.config
        return prompt_batch(
            points, labels, box, mask, size_hw, (config.image_size, config.mask_size)
        )

    def _found(
        self,
        predictions: decoding.MaskPredictions,
        size_hw: tuple[int, int],
        *,
        return_logits: bool,
    ) -> Found:
        masks, scores, low = self._sized(predictions, size_hw, return_logits=return_logits)
        found = (masks.astype(np.float32, copy=False), scores, low)
        return found if len(low) > 1 else (found[0][0], scores[0], low[0])

    def _sized(
        self,
        predictions: decoding.MaskPredictions,
        size_hw: tuple[int, int],
        *,
        return_logits: bool,
    ) -> tuple[NDArray[Any], Floats, Floats]:
        """Masks at the size of the image, bool or logits; scores; low-resolution logits."""
        low = predictions.logits
        clean = cleaned_logits(low, self.mask_threshold, self.max_hole_area, self.max_sprinkle_area)
        if return_logits:
            masks: NDArray[Any] = upscale_logits(clean, size_hw)
        else:
            masks = upscale_masks(clean, size_hw, self.mask_threshold)
        return masks, predictions.scores, low.clip(-LOGIT_LIMIT, LOGIT_LIMIT)


def _at(values: Sequence[Any] | None, index: int, count: int) -> Any:
    if values is None:
        return None
    if len(values) != count:
        raise PromptError(
            "every image of the batch needs a prompt", got=f"{len(values)}", expected=f"{count}"
        )
    return values[index]
