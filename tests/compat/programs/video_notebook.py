"""Clicks, boxes and several objects in a video, as a notebook written for the reference does it."""

# mypy: ignore-errors

# %% 1: imports
import os
from typing import Any

import numpy as np
import torch
from PIL import Image

from samgraph.compat.build_sam import build_sam2_video_predictor

# %% 2: the device
device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
print(f"using device: {device}")

# %% 3: as fast as the device can
if device.type == "cuda":
    torch.autocast("cuda", dtype=torch.bfloat16).__enter__()
torch.set_float32_matmul_precision("high")

# %% 4: the predictor
sam2_checkpoint = "samgraph-nano"
model_cfg = "configs/sam2.1/sam2.1_hiera_l.yaml"
predictor = build_sam2_video_predictor(model_cfg, sam2_checkpoint, device=device)
assert predictor.device == device


# %% 5: drawing
class Axes:
    """Keeps what a plot would show."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def imshow(self, picture: Any) -> None:
        self.shown.append(np.asarray(picture))


def show_mask(mask: Any, ax: Axes, obj_id: int | None = None) -> None:
    palette = np.array([[0.2, 0.4, 0.9], [0.9, 0.5, 0.1], [0.3, 0.7, 0.3]])
    color = np.array([*palette[(obj_id or 0) % 3], 0.6])
    h, w = mask.shape[-2:]
    ax.imshow(mask.reshape(h, w, 1) * color.reshape(1, 1, -1))


def show_points(coords: Any, labels: Any, ax: Axes) -> None:
    ax.shown.append((coords[labels == 1][:, 0], coords[labels == 0][:, 0]))


def show_box(box: Any, ax: Axes) -> None:
    ax.shown.append((box[0], box[1], box[2] - box[0], box[3] - box[1]))


# %% 6: the frames
video_dir = "./videos/scene"
frame_names = [
    p for p in os.listdir(video_dir) if os.path.splitext(p)[-1] in [".jpg", ".jpeg", ".JPG"]
]
frame_names.sort(key=lambda p: int(os.path.splitext(p)[0]))

# %% 7: look at one
frame_idx = 0
axes = Axes()
axes.imshow(Image.open(os.path.join(video_dir, frame_names[frame_idx])))

# %% 8: a session
inference_state = predictor.init_state(video_path=video_dir)

# %% 9: from the beginning
predictor.reset_state(inference_state)

# %% 10: a click
ann_frame_idx = 0
ann_obj_id = 1
points = np.array([[40, 50]], dtype=np.float32)
labels = np.array([1], np.int32)
_, out_obj_ids, out_mask_logits = predictor.add_new_points_or_box(
    inference_state=inference_state,
    frame_idx=ann_frame_idx,
    obj_id=ann_obj_id,
    points=points,
    labels=labels,
)

# %% 11: show it
axes = Axes()
show_points(points, labels, axes)
show_mask((out_mask_logits[0] > 0.0).cpu().numpy(), axes, obj_id=out_obj_ids[0])

# %% 12: a second click
points = np.array([[40, 50], [48, 56]], dtype=np.float32)
labels = np.array([1, 1], np.int32)
_, out_obj_ids, out_mask_logits = predictor.add_new_points_or_box(
    inference_state=inference_state,
    frame_idx=ann_frame_idx,
    obj_id=ann_obj_id,
    points=points,
    labels=labels,
)
show_mask((out_mask_logits[0] > 0.0).cpu().numpy(), axes, obj_id=out_obj_ids[0])

# %% 13: track it
video_segments = {}
for out_frame_idx, out_obj_ids, out_mask_logits in predictor.propagate_in_video(inference_state):
    video_segments[out_frame_idx] = {
        out_obj_id: (out_mask_logits[i] > 0.0).cpu().numpy()
        for i, out_obj_id in enumerate(out_obj_ids)
    }

# %% 14: show some frames
axes = Axes()
for out_frame_idx in range(0, len(frame_names), 2):
    axes.imshow(Image.open(os.path.join(video_dir, frame_names[out_frame_idx])))
    for out_obj_id, out_mask in video_segments[out_frame_idx].items():
        show_mask(out_mask, axes, obj_id=out_obj_id)
assert len(video_segments) == len(frame_names)

# %% 15: a correction on a later frame
ann_frame_idx = 3
points = np.array([[70, 54]], dtype=np.float32)
labels = np.array([0], np.int32)
before = video_segments[ann_frame_idx][ann_obj_id]
_, _, out_mask_logits = predictor.add_new_points_or_box(
    inference_state=inference_state,
    frame_idx=ann_frame_idx,
    obj_id=ann_obj_id,
    points=points,
    labels=labels,
)
show_mask((out_mask_logits[0] > 0.0).cpu().numpy(), axes, obj_id=ann_obj_id)

# %% 16: track again
video_segments = {}
for out_frame_idx, out_obj_ids, out_mask_logits in predictor.propagate_in_video(inference_state):
    video_segments[out_frame_idx] = {
        out_obj_id: (out_mask_logits[i] > 0.0).cpu().numpy()
        for i, out_obj_id in enumerate(out_obj_ids)
    }

# %% 17: another object, by a box
predictor.reset_state(inference_state)
ann_frame_idx = 0
ann_obj_id = 4
box = np.array([100, 66, 136, 102], dtype=np.float32)
_, out_obj_ids, out_mask_logits = predictor.add_new_points_or_box(
    inference_state=inference_state,
    frame_idx=ann_frame_idx,
    obj_id=ann_obj_id,
    box=box,
)
show_box(box, axes)
show_mask((out_mask_logits[0] > 0.0).cpu().numpy(), axes, obj_id=out_obj_ids[0])

# %% 18: the box and a click
points = np.array([[118, 84]], dtype=np.float32)
labels = np.array([1], np.int32)
_, out_obj_ids, out_mask_logits = predictor.add_new_points_or_box(
    inference_state=inference_state,
    frame_idx=ann_frame_idx,
    obj_id=ann_obj_id,
    points=points,
    labels=labels,
    box=box,
)

# %% 19: track it
video_segments = {}
for out_frame_idx, out_obj_ids, out_mask_logits in predictor.propagate_in_video(inference_state):
    video_segments[out_frame_idx] = {
        out_obj_id: (out_mask_logits[i] > 0.0).cpu().numpy()
        for i, out_obj_id in enumerate(out_obj_ids)
    }
assert list(video_segments[0]) == [4]

# %% 20: several objects
predictor.reset_state(inference_state)
prompts = {}

# %% 21: the first
ann_obj_id = 2
points = np.array([[40, 50]], dtype=np.float32)
labels = np.array([1], np.int32)
prompts[ann_obj_id] = points, labels
_, out_obj_ids, out_mask_logits = predictor.add_new_points_or_box(
    inference_state=inference_state,
    frame_idx=0,
    obj_id=ann_obj_id,
    points=points,
    labels=labels,
)

# %% 22: the second
ann_obj_id = 3
points = np.array([[118, 84]], dtype=np.float32)
labels = np.array([1], np.int32)
prompts[ann_obj_id] = points, labels
_, out_obj_ids, out_mask_logits = predictor.add_new_points_or_box(
    inference_state=inference_state,
    frame_idx=0,
    obj_id=ann_obj_id,
    points=points,
    labels=labels,
)

# %% 23: show both
for i, out_obj_id in enumerate(out_obj_ids):
    show_points(*prompts[out_obj_id], axes)
    show_mask((out_mask_logits[i] > 0.0).cpu().numpy(), axes, obj_id=out_obj_id)

# %% 24: track both, and count on the device
video_segments = {}
areas = torch.zeros(len(frame_names), 2, device=device)
for out_frame_idx, out_obj_ids, out_mask_logits in predictor.propagate_in_video(inference_state):
    areas[out_frame_idx] = (out_mask_logits > 0.0).sum(dim=(1, 2, 3))
    video_segments[out_frame_idx] = {
        out_obj_id: (out_mask_logits[i] > 0.0).cpu().numpy()
        for i, out_obj_id in enumerate(out_obj_ids)
    }

# %% 25: masks of one object as a tensor
stack = torch.stack([torch.from_numpy(video_segments[t][2]) for t in sorted(video_segments)])
assert stack.shape == (len(frame_names), 1, 120, 160)
assert torch.equal(stack.flatten(1).sum(1).float(), areas[:, 0])

# %% 26: take one object away
ids, _ = predictor.remove_object(inference_state, obj_id=2)
assert ids == [3]
