"""Semi-supervised video object segmentation: masks of the first frame in, PNG files out.

Reads like the reference's tool for it: all objects at once, or one by one and put together.
"""

# mypy: ignore-errors

import os
from typing import Any

import numpy as np
import torch
from PIL import Image

from samgraph.compat.build_sam import build_sam2_video_predictor


def load_masks(path: str) -> dict[int, Any]:
    """The masks of a palette PNG by object id."""
    labels = np.array(Image.open(path))
    return {int(i): labels == i for i in np.unique(labels) if i > 0}


def save_masks(folder: str, frame: str, masks: dict[int, Any], size: tuple[int, int]) -> None:
    """All masks as one palette PNG."""
    labels = np.zeros(size, np.uint8)
    for object_id in sorted(masks, reverse=True):
        labels[masks[object_id].reshape(size)] = object_id
    os.makedirs(folder, exist_ok=True)
    Image.fromarray(labels, mode=None).save(os.path.join(folder, f"{frame}.png"))


@torch.inference_mode()
@torch.autocast(device_type="cpu", dtype=torch.bfloat16)
def together(predictor: Any, video_dir: str, given: dict[int, Any], threshold: float) -> Any:
    """Every frame's masks, all objects tracked together."""
    state = predictor.init_state(video_path=video_dir, async_loading_frames=False)
    for object_id, mask in given.items():
        predictor.add_new_mask(
            inference_state=state, frame_idx=0, obj_id=object_id, mask=torch.from_numpy(mask)
        )
    found = {}
    for frame, ids, logits in predictor.propagate_in_video(state):
        found[frame] = {
            object_id: (logits[i] > threshold).cpu().numpy() for i, object_id in enumerate(ids)
        }
    return found, (state["video_height"], state["video_width"])


@torch.inference_mode()
def separately(predictor: Any, video_dir: str, given: dict[int, Any], threshold: float) -> Any:
    """Every frame's masks, each object tracked by itself; where two overlap, the surer has it."""
    state = predictor.init_state(video_path=video_dir)
    height, width = state["video_height"], state["video_width"]
    scores: dict[int, dict[int, Any]] = {}
    for object_id, mask in given.items():
        predictor.reset_state(state)
        predictor.add_new_mask(inference_state=state, frame_idx=0, obj_id=object_id, mask=mask)
        for frame, _, logits in predictor.propagate_in_video(state):
            scores.setdefault(frame, {})[object_id] = logits.cpu().numpy()
    found = {}
    for frame, per_object in scores.items():
        every = torch.full((len(given), 1, height, width), -1024.0, dtype=torch.float32)
        for i, object_id in enumerate(given):
            every[i] = torch.from_numpy(per_object[object_id]).reshape(1, height, width)
        if not predictor.non_overlap_masks:
            every = predictor._apply_non_overlapping_constraints(every)
        found[frame] = {
            object_id: (every[i] > threshold).cpu().numpy() for i, object_id in enumerate(given)
        }
    return found, (height, width)


def main(video_dir: str, annotation: str, output: str, one_by_one: bool) -> None:
    """Track the objects of an annotation and write a PNG per frame."""
    predictor = build_sam2_video_predictor(
        config_file="configs/sam2.1/sam2.1_hiera_b+.yaml",
        ckpt_path="samgraph-nano",
        apply_postprocessing=True,
        hydra_overrides_extra=["++model.non_overlap_masks=" + str(not one_by_one).lower()],
        vos_optimized=True,
    )
    track = separately if one_by_one else together
    found, size = track(predictor, video_dir, load_masks(annotation), threshold=0.0)
    for frame, masks in found.items():
        save_masks(output, f"{frame:05d}", masks, size)
