"""Frames of a camera, through OpenCV where it is installed."""

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from samgraph.errors import VideoError
from samgraph.media.image.reading import Rgb


def camera_frames(number: int) -> Iterator[Rgb]:
    """The frames of a camera as uint8 RGB, [H, W, 3], until it ends.

    Raises:
        VideoError: OpenCV is not installed, or there is no such camera.
    """
    try:
        cv2: Any = importlib.import_module("cv2")
    except ImportError as error:
        raise VideoError(
            "cameras are read with OpenCV, which is not installed",
            hint="pip install opencv-python-headless, or give an iterator of frames",
        ) from error
    camera = cv2.VideoCapture(number)
    if not camera.isOpened():
        raise VideoError(f"camera {number} cannot be opened")
    return _frames(camera)


def _frames(camera: Any) -> Iterator[Rgb]:
    try:
        while True:
            is_read, frame = camera.read()
            if not is_read:
                return
            yield np.ascontiguousarray(frame[:, :, ::-1])
    finally:
        camera.release()
