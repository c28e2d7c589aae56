"""What `torchvision_stand_in` installs. Imports torch, so import it only from there."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn


class ToTensor:
    """A picture, [H, W, 3] of 8 bits, as a float tensor [3, H, W] in 0..1."""

    def __call__(self, picture: Any) -> Tensor:
        array = np.array(picture)
        tensor = torch.from_numpy(array.transpose(2, 0, 1).copy())
        return tensor.float() / 255 if array.dtype == np.uint8 else tensor


class Resize(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Bilinear with antialiasing, aspect not kept."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.height = size[0]
        self.width = size[1]

    def forward(self, x: Tensor) -> Tensor:
        size = [self.height, self.width]
        return F.interpolate(x[None], size, mode="bilinear", align_corners=False, antialias=True)[0]


class Normalize(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """(x - mean) / std, a channel at a time."""

    def __init__(self, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def box_area(boxes: Tensor) -> Tensor:
    """Areas [N] of boxes [N, 4] (x0, y0, x1, y1)."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def batched_nms(boxes: Tensor, scores: Tensor, classes: Tensor, iou_threshold: float) -> Tensor:
    """Indices kept, best first: a box goes when a better one of its class overlaps it too much."""
    area = box_area(boxes)
    order = torch.argsort(scores, descending=True, stable=True).tolist()
    kept: list[int] = []
    while order:
        best = order.pop(0)
        kept.append(best)
        rest = torch.tensor(order, dtype=torch.long)
        corner0 = torch.maximum(boxes[best, :2], boxes[rest, :2])
        corner1 = torch.minimum(boxes[best, 2:], boxes[rest, 2:])
        shared = (corner1 - corner0).clamp(min=0).prod(dim=1)
        overlap = shared / (area[best] + area[rest] - shared)
        gone = (overlap > iou_threshold) & (classes[rest] == classes[best])
        order = rest[~gone].tolist()
    return torch.tensor(kept, dtype=torch.long)
