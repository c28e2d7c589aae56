"""Automatic masks, as a notebook written for the reference makes them."""

# mypy: ignore-errors

# %% imports
from typing import Any

import numpy as np
from PIL import Image

from samgraph.compat.automatic_mask_generator import SAM2AutomaticMaskGenerator
from samgraph.compat.build_sam import build_sam2
from samgraph.compat.utils.amg import rle_to_mask


# %% drawing
def show_anns(anns: list[dict[str, Any]]) -> Any:
    sorted_anns = sorted(anns, key=lambda x: x["area"], reverse=True)
    picture = np.ones((*sorted_anns[0]["segmentation"].shape, 4))
    picture[..., 3] = 0
    for ann in sorted_anns:
        picture[ann["segmentation"]] = np.array([0.3, 0.6, 0.9, 0.5])
    return picture


# %% the model
image = np.array(Image.open("images/scene.png").convert("RGB"))
sam2 = build_sam2("samgraph-nano", device="cpu", apply_postprocessing=False)
mask_generator = SAM2AutomaticMaskGenerator(
    sam2, points_per_side=6, pred_iou_thresh=0.5, stability_score_thresh=0.5
)

# %% generate
masks = mask_generator.generate(image)
print(len(masks), masks[0].keys())
overlay = show_anns(masks)

# %% with other settings
mask_generator_2 = SAM2AutomaticMaskGenerator(
    model=sam2,
    points_per_side=6,
    points_per_batch=128,
    pred_iou_thresh=0.4,
    stability_score_thresh=0.4,
    stability_score_offset=0.7,
    crop_n_layers=1,
    box_nms_thresh=0.7,
    crop_n_points_downscale_factor=2,
    min_mask_region_area=25.0,
    use_m2m=True,
    output_mode="uncompressed_rle",
)

# %% generate again
masks2 = mask_generator_2.generate(image)
areas = [int(rle_to_mask(mask["segmentation"]).sum()) for mask in masks2]
assert areas == [mask["area"] for mask in masks2]
