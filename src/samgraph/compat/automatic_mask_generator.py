"""The reference's automatic mask generator: its arguments, and its list of dicts.

    generator = SAM2AutomaticMaskGenerator(model, points_per_side=16)
    for record in generator.generate(image):
        record["segmentation"], record["predicted_iou"], ...

Without `pred_iou_thresh` and `stability_score_thresh`, a released model has the reference's 0.8 and
0.95, and the built-in model its own.

Differs from the original: `min_mask_region_area` cleans masks at the size of the image, as SAM's
did, and needs neither CUDA nor OpenCV; `coco_rle` needs no pycocotools.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.sam2_image_predictor import SAM2ImagePredictor
from samgraph.formats.sam import Mode
from samgraph.predict.everything.generate import segment_everything
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.options import changed


class SAM2AutomaticMaskGenerator:
    """The reference's generator on samgraph's model."""

    def __init__(
        self,
        model: Any,
        points_per_side: int | None = 32,
        points_per_batch: int = 64,
        pred_iou_thresh: float | None = None,
        stability_score_thresh: float | None = None,
        stability_score_offset: float = 1.0,
        mask_threshold: float = 0.0,
        box_nms_thresh: float = 0.7,
        crop_n_layers: int = 0,
        crop_nms_thresh: float = 0.7,
        crop_overlap_ratio: float = 512 / 1500,
        crop_n_points_downscale_factor: int = 1,
        point_grids: Sequence[NDArray[np.float64]] | None = None,
        min_mask_region_area: int = 0,
        output_mode: Mode = "binary_mask",
        use_m2m: bool = False,
        multimask_output: bool = True,
        **kwargs: Any,
    ) -> None:
        given = {**locals(), "multimask": multimask_output}
        self.options = EverythingOptions(**changed(given, EverythingOptions))
        self.point_grids = self.options.grids
        self.predictor = SAM2ImagePredictor(model)

    @classmethod
    def from_pretrained(cls, model_id: str, **kwargs: Any) -> "SAM2AutomaticMaskGenerator":
        """A generator by the name of a repository, such as `facebook/sam2.1-hiera-tiny`."""
        from samgraph.compat.build_sam import build_sam2_hf

        own = {field.name for field in fields(EverythingOptions)} | {"multimask_output"}
        rest = {name: value for name, value in kwargs.items() if name not in own}
        return cls(build_sam2_hf(model_id, **rest), **kwargs)

    def generate(self, image: Any) -> list[dict[str, Any]]:
        """The masks of an RGB array uint8 [H, W, 3], best first."""
        self.predictor.set_image(image)
        encoded = self.predictor._image()
        self.predictor.reset_predictor()
        found = segment_everything(encoded.core, encoded, progress=False, options=self.options)
        return [_with_floats(record) for record in found.to_sam_dicts()]


def _with_floats(record: dict[str, Any]) -> dict[str, Any]:
    """Boxes as the reference has them: lists of floats."""
    boxes = {key: [float(n) for n in record[key]] for key in ("bbox", "crop_box")}
    return record | boxes
