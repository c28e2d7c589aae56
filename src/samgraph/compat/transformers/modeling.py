"""Images: `model(**inputs)` gives masks and scores of every prompt on every image.

Shapes: B images, N prompts per image, M masks per prompt, L mask size, S image size.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.feature_maps import features_of, maps_of
from samgraph.compat.host import to_host
from samgraph.compat.modeling.sam2_base import SAM2Base
from samgraph.compat.tensor import Tensor, tensor
from samgraph.compat.transformers.encoding import ModelOutput
from samgraph.compat.transformers.processing import PAD
from samgraph.compat.transformers.sources import WEIGHTS, load_options, weights_of
from samgraph.errors import PromptError
from samgraph.media.files import make_folder
from samgraph.models.family import ABSENT, NO_POINT, Decoded, DecoderPrompts, Features
from samgraph.models.loading import load_model
from samgraph.predict.image import decoding
from samgraph.predict.prompts import BOX_LABELS, PromptBatch

Floats = NDArray[np.float32]


@dataclass
class Sam2ImageSegmentationOutput(ModelOutput):
    """The outputs of each prompt: scores [B, N, M], logits [B, N, M, L, L], ..."""

    iou_scores: Tensor
    pred_masks: Tensor
    object_score_logits: Tensor  # [B, N, 1]
    image_embeddings: tuple[Tensor, ...] | None = None


class PretrainedModel(SAM2Base):
    """Base of the library's models."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Self:
        """A model by its name, a file, or a folder; released weights are downloaded once."""
        options = load_options(kwargs)
        return cls(load_model(weights_of(pretrained_model_name_or_path), **options))

    def save_pretrained(self, save_directory: Any, **_: Any) -> None:
        """Write the weights into a folder, which is made; `from_pretrained` reads it."""
        self.save(make_folder(Path(save_directory)) / WEIGHTS)

    @property
    def dtype(self) -> Any:
        """The dtype of inputs and outputs."""
        return np.dtype(np.float32)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `forward`."""
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model computes."""
        raise PromptError("this model cannot be called")


class Sam2Model(PretrainedModel):
    """The library's model of images on samgraph's graphs."""

    def forward(
        self,
        pixel_values: Any = None,
        input_points: Any = None,
        input_labels: Any = None,
        input_boxes: Any = None,
        input_masks: Any = None,
        image_embeddings: Any = None,
        multimask_output: bool = True,
        **_: Any,
    ) -> Sam2ImageSegmentationOutput:
        """Masks of prompts, in pixels of the model's input, on images or on their embeddings.

        Points [B, N, P, 2], labels [B, N, P], boxes [B, N, 4], mask logits [B, 1, L, L].
        """
        if (pixel_values is None) == (image_embeddings is None):
            raise PromptError("exactly one of `pixel_values` and `image_embeddings` must be given")
        features = (
            self.core.encode(_floats(pixel_values))
            if image_embeddings is None
            else features_of(self.core, image_embeddings)
        )
        prompts = image_prompts(len(features), input_points, input_labels, input_boxes)
        masks = None if input_masks is None else self._masks(input_masks, len(features))
        found = [
            self._decode(
                features.image(i), points, labels, None if masks is None else masks[i : i + 1],
                multimask=multimask_output,
            )
            for i, (points, labels) in enumerate(prompts)
        ]  # fmt: skip
        logits, scores, objects = (np.stack(column) for column in zip(*found, strict=True))
        return Sam2ImageSegmentationOutput(
            tensor(scores), tensor(logits), tensor(objects), maps_of(self.core, [features])
        )

    def get_image_embeddings(self, pixel_values: Any, **_: Any) -> list[Tensor]:
        """Feature maps of images, finest first, for `image_embeddings=` of later calls."""
        return list(maps_of(self.core, [self.core.encode(_floats(pixel_values))]))

    def _decode(
        self,
        features: Features,
        points: Floats,
        labels: Any,
        mask: Floats | None,
        *,
        multimask: bool,
    ) -> tuple[Floats, Floats, Floats]:
        """Logits [N, M, L, L], scores [N, M] and object scores [N, 1] of one image."""
        core, parts, objects = self.core, [], []
        prepared = {} if mask is not None else core.prepare(features)
        every = PromptBatch(points, labels, None, np.full(len(points), mask is not None))
        for batch in decoding.split(every):
            found: Decoded
            if mask is None:
                found = core.decode_points(prepared, batch.points, batch.labels)
            else:
                masks = core.buffers.upload(np.repeat(mask, len(batch), axis=0))
                flags = np.full(len(batch), multimask)
                given = DecoderPrompts(batch.points, batch.labels, flags, masks)
                found = core.decode(features, given)
            parts.append(decoding.choose(core, found, multimask=multimask))
            objects.append(core.buffers.download(found.object_score))
        joined = decoding.concatenate(parts)
        return joined.logits, joined.scores, np.concatenate(objects)

    def _masks(self, masks: Any, count: int) -> Floats:
        side = self.core.config.mask_size
        given = _floats(masks)
        if given.shape != (count, 1, side, side):
            raise PromptError(
                "`input_masks` have the wrong shape",
                got=f"{list(given.shape)}",
                expected=f"[{count}, 1, {side}, {side}]",
            )
        return given


def image_prompts(
    count: int, points: Any, labels: Any, boxes: Any
) -> list[tuple[Floats, NDArray[np.int64]]]:
    """Points [N, P, 2] and labels [N, P] for each image, boxes as two points in front."""
    xy: list[Floats] = []
    kinds: list[NDArray[np.int64]] = []
    if boxes is not None:
        corners = _floats(boxes)
        xy.append(corners.reshape(*corners.shape[:2], 2, 2))
        kinds.append(np.broadcast_to(np.array(BOX_LABELS), (*corners.shape[:2], 2)))
    if points is not None:
        xy.append(_floats(points))
        given = np.ones(xy[-1].shape[:3]) if labels is None else np.asarray(to_host(labels))
        kinds.append(np.where(given == PAD, ABSENT, given).astype(np.int64))
    if not xy:  # as in the library: an empty point, and the padding
        return [(np.zeros((1, 1, 2), np.float32), np.full((1, 1), NO_POINT))] * count
    every: list[NDArray[Any]] = [*xy, *kinds]
    shapes = {array.shape[:2] for array in every}
    if len(shapes) > 1 or next(iter(shapes))[0] != count:
        raise PromptError(
            "prompts do not fit the images or each other",
            got=", ".join(str(list(array.shape)) for array in every),
            expected=f"{count} images, as many objects for points, labels and boxes",
        )
    points_of, labels_of = np.concatenate(xy, axis=2), np.concatenate(kinds, axis=2)
    return list(zip(points_of, labels_of, strict=True))


def _floats(values: Any) -> Floats:
    return np.ascontiguousarray(to_host(values), np.float32)
