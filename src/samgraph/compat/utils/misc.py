"""The reference's functions for video frames and masks, by its names.

Programs may replace `load_video_frames`; a predictor uses the function found here when it is
built.
"""

from typing import Any

import numpy as np

from samgraph.compat.host import to_host
from samgraph.compat.tensor import Tensor, like, tensor
from samgraph.errors import VideoError
from samgraph.media.image.preprocess import MEAN, STD, resize_video_frame
from samgraph.media.mask.components import connected_components
from samgraph.media.mask.geometry import masks_to_boxes
from samgraph.media.video.frames import FrameSource, open_frames
from samgraph.predict.video.step import without_holes

Rgb = tuple[float, float, float]


class Frames:
    """The frames of a video as the reference's `images`: float32 [3, S, S], decoded on access."""

    def __init__(self, source: FrameSource, size: int, mean: Rgb = MEAN, std: Rgb = STD) -> None:
        self.source, self._size, self._mean, self._std = source, size, mean, std

    def __len__(self) -> int:
        return self.source.length or 0

    def __getitem__(self, index: int) -> Tensor:
        frame = self.source.frame(index)
        return tensor(resize_video_frame(frame, self._size, mean=self._mean, std=self._std))


def load_video_frames(
    video_path: Any,
    image_size: int,
    offload_video_to_cpu: bool = False,
    img_mean: Rgb = MEAN,
    img_std: Rgb = STD,
    async_loading_frames: bool = False,
    compute_device: Any = None,
) -> tuple[Frames, int, int]:
    """The frames of a file, a folder or a list, with the height and width of the video.

    Frames are decoded when they are needed: nothing is loaded ahead of time or onto a device.
    """
    source = open_frames(to_host(video_path))
    if source.length is None:
        raise VideoError(
            "the number of frames must be known", expected="a list, a folder or a file"
        )
    return Frames(source, image_size, img_mean, img_std), *source.size_hw


def load_video_frames_from_jpg_images(
    video_path: Any,
    image_size: int,
    offload_video_to_cpu: bool = False,
    img_mean: Rgb = MEAN,
    img_std: Rgb = STD,
    async_loading_frames: bool = False,
    compute_device: Any = None,
) -> tuple[Frames, int, int]:
    """As `load_video_frames`, of a folder of images."""
    return load_video_frames(video_path, image_size, img_mean=img_mean, img_std=img_std)


def load_video_frames_from_video_file(
    video_path: Any,
    image_size: int,
    offload_video_to_cpu: bool = False,
    img_mean: Rgb = MEAN,
    img_std: Rgb = STD,
    compute_device: Any = None,
) -> tuple[Frames, int, int]:
    """As `load_video_frames`, of a video file."""
    return load_video_frames(video_path, image_size, img_mean=img_mean, img_std=img_std)


def get_connected_components(mask: Any) -> tuple[Any, Any]:
    """Components of masks [N, 1, H, W]: the label of each pixel, from 1, and its area."""
    given = np.asarray(to_host(mask)).astype(np.bool_)
    labels, areas = np.zeros(given.shape, np.int32), np.zeros(given.shape, np.int32)
    for index in np.ndindex(given.shape[:-2]):
        labels[index], sizes = connected_components(given[index], 8)
        areas[index] = np.where(given[index], sizes[labels[index]], 0)
    return like(mask, labels), like(mask, areas)


def mask_to_box(masks: Any) -> Any:
    """The box of each mask [B, 1, H, W], the last pixels included: [B, 1, 4]."""
    given = np.asarray(to_host(masks)).astype(np.bool_)
    boxes = masks_to_boxes(given, inclusive=True)
    height, width = given.shape[-2:]
    boxes[~given.any(axis=(-2, -1))] = (width, height, -1, -1)  # as the reference has it
    return like(masks, boxes.astype(np.int32))


def fill_holes_in_mask_scores(mask: Any, max_area: int) -> Any:
    """Logits [..., H, W] with holes of up to `max_area` pixels filled."""
    return like(mask, without_holes(np.asarray(to_host(mask)), max_area))


def concat_points(
    old_point_inputs: dict[str, Any] | None, new_points: Any, new_labels: Any
) -> dict[str, Any]:
    """Points and labels after those there were."""
    points, labels = np.asarray(to_host(new_points)), np.asarray(to_host(new_labels))
    if old_point_inputs is not None:
        old = (to_host(old_point_inputs[key]) for key in ("point_coords", "point_labels"))
        points, labels = (
            np.concatenate([before, after], axis=1)
            for before, after in zip(old, (points, labels), strict=True)
        )
    return {"point_coords": like(new_points, points), "point_labels": like(new_labels, labels)}
