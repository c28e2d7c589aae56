"""The reference's image predictor: its methods, shapes, dtypes and order of results.

    predictor = SAM2ImagePredictor(build_sam2("configs/sam2.1/sam2.1_hiera_t.yaml", "weights.pt"))
    predictor.set_image(image)
    masks, scores, logits = predictor.predict(point_coords=[[500, 375]], point_labels=[1])

Differs from the original: arrays are numpy's; `max_hole_area` and `max_sprinkle_area` work without
its CUDA extension. `samgraph.load(...).image(...)` is samgraph's own interface to the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.compat.building import config_named
from samgraph.compat.prompts import cleaned_logits, prompt_batch
from samgraph.errors import CheckpointError, ImageError, PromptError
from samgraph.media.image.preprocess import upscale_logits, upscale_masks
from samgraph.media.image.reading import Rgb, read_image
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import Source, load_model
from samgraph.predict.image import decoding
from samgraph.predict.image.encoded import EncodedImage, encode_pixels
from samgraph.predict.image.result import LOGIT_LIMIT
from samgraph.predict.model import Model
from samgraph.predict.output import Picture
from samgraph.predict.prompts import PromptBatch, join

Floats = NDArray[np.float32]
Found = tuple[Floats, Floats, Floats]


class NotSetError(ImageError, RuntimeError):
    """There is no image to predict on; a RuntimeError, as in the reference."""


class SAM2Base(Model):
    """What `build_sam2` returns: a model that also has the reference's names."""

    def __init__(self, core: SegmentationModel, *, falls_back: bool = True) -> None:
        super().__init__(core)
        self.falls_back = falls_back

    @property
    def image_size(self) -> int:
        """Side of the model's input."""
        return int(self.core.config.image_size)

    @property
    def device(self) -> str:
        """Where arrays are: in main memory."""
        return "cpu"

    def eval(self) -> "SAM2Base":
        """Itself: nothing here is trained."""
        return self

    def to(self, *_: Any, **__: Any) -> "SAM2Base":
        """Itself: the device is chosen when the model is built."""
        return self


def build_sam2(
    config_file: str,
    ckpt_path: Source | None = None,
    device: Any = "auto",
    mode: str = "eval",
    hydra_overrides_extra: Sequence[str] = (),
    apply_postprocessing: bool = True,
    **kwargs: Any,
) -> SAM2Base:
    """A model from a checkpoint; `config_file` is the reference's name for its config.

    With `apply_postprocessing`, an unstable single mask is replaced by the best of the multimask
    output. `mode` has no effect. Other arguments go to `samgraph.load`: threads, precision,
    image_size.
    """
    from samgraph.compat.video_settings import video_settings

    if ckpt_path is None:
        raise CheckpointError(
            "a model needs weights", got="ckpt_path=None", hint="give the path of a checkpoint"
        )
    settings = video_settings(hydra_overrides_extra, apply_postprocessing=apply_postprocessing)
    config = config_named(config_file)
    core = load_model(ckpt_path, config=config, device=str(device), **kwargs)
    return SAM2Base(core, falls_back=settings.dynamic_multimask_via_stability)


def build_sam2_hf(model_id: str, **kwargs: Any) -> SAM2Base:
    """A model by the name of its repository; the weights are downloaded once and checked."""
    return build_sam2(model_id, model_id, **kwargs)


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
        self.core: SegmentationModel = getattr(sam_model, "core", sam_model)
        self.mask_threshold = mask_threshold
        self.max_hole_area, self.max_sprinkle_area = max_hole_area, max_sprinkle_area
        self._falls_back = bool(getattr(sam_model, "falls_back", True))
        self.reset_predictor()

    @classmethod
    def from_pretrained(cls, model_id: str, **kwargs: Any) -> "SAM2ImagePredictor":
        """A predictor by the name of its repository, such as `facebook/sam2.1-hiera-tiny`."""
        own = ("mask_threshold", "max_hole_area", "max_sprinkle_area")
        rest = {name: value for name, value in kwargs.items() if name not in own}
        return cls(build_sam2_hf(model_id, **rest), **kwargs)

    @property
    def device(self) -> str:
        """Where arrays are: in main memory."""
        return "cpu"

    def set_image(self, image: Any) -> None:
        """Encode an image: an RGB array [H, W, 3] of 8 bits, or a Pillow image as stored."""
        self.reset_predictor()
        self._encode([_pixels(image)])

    def set_image_batch(self, image_list: list[Any]) -> None:
        """Encode several images, for `predict_batch`."""
        self.reset_predictor()
        if not isinstance(image_list, list) or not image_list:
            raise ImageError(
                "a batch is a list of images", got=type(image_list).__name__, expected="a list"
            )
        self._encode([_pixels(image) for image in image_list])
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

        Several prompts at once, boxes [B, 4] or points [B, N, 2], put a B in front of each.
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

    def get_image_embedding(self) -> Floats:
        """The embedding [B, C, E, E] with `no_mem_embed` added, as in the reference."""
        self._image()
        no_memory = self.core.weights["no_mem_embed"].reshape(1, -1, 1, 1)
        embedding: Floats = self._maps("embedding") + no_memory
        return embedding

    def reset_predictor(self) -> None:
        """Forget the image."""
        self._images: list[EncodedImage] = []
        self._is_batch = False

    @property
    def _is_image_set(self) -> bool:
        return bool(self._images)

    @property
    def _orig_hw(self) -> list[tuple[int, int]] | None:
        return [image.size_hw for image in self._images] or None

    @property
    def _features(self) -> dict[str, Any] | None:
        """The feature maps under the reference's names."""
        if not self._images:
            return None
        fine = [self._maps(name) for name in ("fine_0", "fine_1")]
        return {"image_embed": self.get_image_embedding(), "high_res_feats": fine}

    def _maps(self, name: str) -> Floats:
        """A feature map of all images, on the host."""
        maps = [image.embedding.features.maps[name] for image in self._images]
        return self.core.buffers.download(self.core.buffers.concat(maps))

    def _image(self) -> EncodedImage:
        """The image to predict on; the last image of a batch, as in the reference."""
        if not self._images:
            raise NotSetError("no image is set", hint="call `set_image` first")
        return self._images[-1]

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
        low = predictions.logits
        clean = cleaned_logits(low, self.mask_threshold, self.max_hole_area, self.max_sprinkle_area)
        if return_logits:
            masks = upscale_logits(clean, size_hw)
        else:
            masks = upscale_masks(clean, size_hw, self.mask_threshold).astype(np.float32)
        found = (masks, predictions.scores, low.clip(-LOGIT_LIMIT, LOGIT_LIMIT))
        if len(low) > 1:
            return found
        masks, scores, logits = (array[0] for array in found)
        return masks, scores, logits


def _pixels(image: Any) -> Rgb:
    """Pixels as stored: the reference ignores EXIF orientation."""
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"))
    return read_image(image)


def _at(values: Sequence[Any] | None, index: int, count: int) -> Any:
    if values is None:
        return None
    if len(values) != count:
        raise PromptError(
            "every image of the batch needs a prompt", got=f"{len(values)}", expected=f"{count}"
        )
    return values[index]
