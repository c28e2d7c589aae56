"""Clicks, boxes and batches on images, as a notebook written for the reference does it."""

# mypy: ignore-errors

# %% imports
from typing import Any

import numpy as np
from PIL import Image

from samgraph.compat.build_sam import build_sam2
from samgraph.compat.sam2_image_predictor import SAM2ImagePredictor

drawn: list[Any] = []


# %% drawing
def show_mask(mask: Any, random_color: bool = False) -> None:
    rng = np.random.default_rng(3)
    color = np.append(rng.random(3), 0.6) if random_color else np.array([0.1, 0.5, 1.0, 0.6])
    height, width = mask.shape[-2:]
    layer = mask.astype(np.uint8).reshape(height, width, 1) * color.reshape(1, 1, -1)
    drawn.append(layer)


def show_points(coords: Any, labels: Any) -> None:
    drawn.append((coords[labels == 1], coords[labels == 0]))


def show_box(box: Any) -> None:
    left, top = box[0], box[1]
    drawn.append((left, top, box[2] - box[0], box[3] - box[1]))


def show_masks(image: Any, masks: Any, scores: Any, coords: Any = None, labels: Any = None) -> None:
    for i, (mask, score) in enumerate(zip(masks, scores, strict=True)):
        show_mask(mask)
        if coords is not None:
            show_points(coords, labels)
        drawn.append(f"Mask {i + 1}, Score: {score:.3f}")


# %% the image
image = np.array(Image.open("images/scene.png").convert("RGB"))
assert image.shape == (120, 160, 3)

# %% the model
sam2_checkpoint = "samgraph-nano"
model_cfg = "configs/sam2.1/sam2.1_hiera_l.yaml"
sam2_model = build_sam2(model_cfg, sam2_checkpoint, device="cpu")
predictor = SAM2ImagePredictor(sam2_model)

# %% encode
predictor.set_image(image)

# %% a click
input_point = np.array([[40, 50]])
input_label = np.array([1])
show_points(input_point, input_label)

# %% the embedding
print(predictor._features["image_embed"].shape, predictor._features["image_embed"][-1].shape)

# %% predict, best first
masks, scores, logits = predictor.predict(
    point_coords=input_point,
    point_labels=input_label,
    multimask_output=True,
)
sorted_ind = np.argsort(scores)[::-1]
masks = masks[sorted_ind]
scores = scores[sorted_ind]
logits = logits[sorted_ind]

# %% shapes
assert masks.shape == (3, 120, 160)
assert type(masks) is np.ndarray

# %% show
show_masks(image, masks, scores, input_point, input_label)

# %% more clicks, with the best mask so far
input_point = np.array([[40, 50], [48, 56]])
input_label = np.array([1, 1])
mask_input = logits[np.argmax(scores), :, :]
masks, scores, _ = predictor.predict(
    point_coords=input_point,
    point_labels=input_label,
    mask_input=mask_input[None, :, :],
    multimask_output=False,
)
assert masks.shape == (1, 120, 160)

# %% a negative click
input_point = np.array([[40, 50], [118, 84]])
input_label = np.array([1, 0])
masks, scores, _ = predictor.predict(
    point_coords=input_point,
    point_labels=input_label,
    mask_input=mask_input[None, :, :],
    multimask_output=False,
)
show_masks(image, masks, scores, input_point, input_label)

# %% a box
input_box = np.array([17, 27, 63, 73])
masks, scores, _ = predictor.predict(
    point_coords=None,
    point_labels=None,
    box=input_box[None, :],
    multimask_output=False,
)
show_box(input_box)
show_mask(masks[0])

# %% a box and a click
masks, scores, logits = predictor.predict(
    point_coords=np.array([[30, 40]]),
    point_labels=np.array([0]),
    box=input_box,
    multimask_output=False,
)

# %% several boxes at once
input_boxes = np.array([[17, 27, 63, 73], [100, 66, 136, 102], [84, 0, 92, 120]])
masks, scores, _ = predictor.predict(
    point_coords=None,
    point_labels=None,
    box=input_boxes,
    multimask_output=False,
)
assert masks.shape == (3, 1, 120, 160)
for mask in masks:
    show_mask(mask.squeeze(0), random_color=True)

# %% a batch of images with boxes
img_batch = [image, image[:, ::-1].copy()]
boxes_batch = [input_boxes, np.array([[97, 27, 143, 73]])]
predictor.set_image_batch(img_batch)
masks_batch, scores_batch, _ = predictor.predict_batch(
    None, None, box_batch=boxes_batch, multimask_output=False
)
assert [m.shape for m in masks_batch] == [(3, 1, 120, 160), (1, 120, 160)]

# %% a batch of images with points
pts_batch = [np.array([[[40, 50]], [[118, 84]]]), np.array([[[120, 50]]])]
labels_batch = [np.array([[1], [1]]), np.array([[1]])]
masks_batch, scores_batch, _ = predictor.predict_batch(
    pts_batch, labels_batch, box_batch=None, multimask_output=True
)

# %% the best of each
best_masks = []
for found, found_scores in zip(masks_batch, scores_batch, strict=True):
    many = found if found.ndim == 4 else found[None]
    each = found_scores if found_scores.ndim == 2 else found_scores[None]
    best_masks.append(many[range(len(many)), np.argmax(each, axis=-1)])
assert [m.shape for m in best_masks] == [(2, 120, 160), (1, 120, 160)]
