"""Automatic masks, called as the library's `mask-generation` pipeline."""

from typing import Any

import numpy as np

from samgraph.compat.modeling.sam2_base import core_of
from samgraph.compat.tensor import tensor
from samgraph.compat.transformers.modeling import Sam2Model
from samgraph.compat.transformers.processing import image_list
from samgraph.errors import OptionError
from samgraph.predict.everything.generate import segment_everything
from samgraph.predict.everything.options import own_thresholds

TASK = "mask-generation"
# The pipeline's names and defaults, and ours; the built-in model has thresholds of its own.
_NAMES = {
    "points_per_batch": ("points_per_batch", 64),
    "points_per_crop": ("points_per_side", 32),
    "pred_iou_thresh": ("pred_iou_thresh", 0.88),
    "stability_score_thresh": ("stability_score_thresh", 0.95),
    "stability_score_offset": ("stability_score_offset", 1.0),
    "mask_threshold": ("mask_threshold", 0.0),
    "crops_n_layers": ("crop_n_layers", 0),
    "crops_nms_thresh": ("crop_nms_thresh", 0.7),
    "crop_overlap_ratio": ("crop_overlap_ratio", 512 / 1500),
    "crop_n_points_downscale_factor": ("crop_n_points_downscale_factor", 1),
}
_OUTPUTS = ("output_rle_mask", "output_bboxes_mask")


class MaskGenerationPipeline:
    """Masks of everything in an image."""

    def __init__(self, model: Any, **_: Any) -> None:
        self.model = model

    def __call__(self, images: Any, **kwargs: Any) -> Any:
        """`masks`, a list of bool [H, W], and `scores` [N] of an image; a list for a list."""
        if isinstance(images, list):
            return [self._one(image, kwargs) for image in images]
        return self._one(image_list(images)[0], kwargs)

    def _one(self, image: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        unknown = sorted(kwargs.keys() - _NAMES.keys() - set(_OUTPUTS))
        if unknown:
            raise OptionError(
                f"mask generation has no option `{unknown[0]}`",
                expected=", ".join([*_NAMES, *_OUTPUTS]),
            )
        core = core_of(self.model)
        own = own_thresholds(core.config)
        options = {
            ours: kwargs.get(name, own.get(ours, value)) for name, (ours, value) in _NAMES.items()
        }
        found = segment_everything(core, image, progress=False, **options)
        segments = found.segments
        output: dict[str, Any] = {
            "masks": [tensor(segment.mask) for segment in segments],
            "scores": tensor(np.array([segment.score for segment in segments], np.float32)),
        }
        if kwargs.get("output_rle_mask"):
            output["rle_mask"] = [dict(segment.rle) for segment in segments]
        if kwargs.get("output_bboxes_mask"):
            boxes = [segment.box_xyxy for segment in segments]
            output["bounding_boxes"] = tensor(np.array(boxes, np.float32).reshape(-1, 4))
        return output


def pipeline(task: str = TASK, model: Any = None, **kwargs: Any) -> MaskGenerationPipeline:
    """The pipeline `mask-generation` of a model, given by its name or itself."""
    if task != TASK:
        raise OptionError(f"there is no pipeline `{task}` here", expected=TASK)
    if model is None or isinstance(model, str):
        model = Sam2Model.from_pretrained(model or "samgraph-nano", **kwargs)
    return MaskGenerationPipeline(model)
