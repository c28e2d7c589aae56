"""A detector and a stream are a tracker: boxes in on every frame, masks with lasting ids out.

    python track_boxes.py [clip.mp4]

The detector here is a toy that needs no download: what differs from the usual picture moves, and
each connected region of it is a box. Any other goes in its place: a function from a picture to
boxes [K, 4] as left, top, right, bottom, with scores, and with ids if it has them.
"""

import sys
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

import samgraph
from samgraph.media.mask.components import connected_components
from samgraph.media.mask.geometry import masks_to_boxes
from samgraph.media.video.frames import open_frames
from samgraph.predict.video.result import FrameResult

Picture = NDArray[np.uint8]
HEIGHT, WIDTH = 120, 160


class MotionDetector:
    """Boxes around what differs from the mean of the pictures so far."""

    def __init__(self, difference: float = 40.0, least_area: int = 40) -> None:
        self.difference, self.least_area = difference, least_area
        self.usual: NDArray[np.float32] | None = None

    def __call__(self, picture: Picture) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Boxes [K, 4] and scores [K]."""
        now = picture.astype(np.float32)
        if self.usual is None:
            self.usual = now
        moved = np.abs(now - self.usual).max(axis=2)
        self.usual += 0.05 * (now - self.usual)
        labels, areas = connected_components(moved > self.difference)
        found = [label for label in range(1, len(areas)) if areas[label] >= self.least_area]
        boxes = [masks_to_boxes(labels == label) for label in found]
        scores = [min(1.0, float(moved[labels == label].mean()) / 128) for label in found]
        return np.array(boxes, np.int64).reshape(-1, 4), np.array(scores, np.float32)


def drawn_clip(frames: int = 12) -> Iterator[Picture]:
    """An empty room; then a red disc from the left, and later a blue square from above."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    room = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    room[80:] = 60
    for index in range(frames):
        picture = room.copy()
        if index >= 1:
            disc = (columns - 10 - 9 * index) ** 2 + (rows - 60) ** 2 <= 16**2
            picture[disc] = (220, 60, 50)
        if index >= 5:
            top = 6 * (index - 5)
            picture[top : top + 26, 120:146] = (50, 80, 230)
        yield picture


def read_clip(path: str) -> Iterator[Picture]:
    """The frames of a file, one at a time."""
    with open_frames(path) as source:
        for index in range(source.length or 0):
            yield source.frame(index)


def track(
    model: samgraph.Model, pictures: Iterable[Picture], detector: MotionDetector
) -> Iterator[FrameResult]:
    """Every picture with its objects. Memory does not grow with the length."""
    stream = model.stream(match_iou=0.3, min_score=0.2, end_after=10)
    for picture in pictures:
        boxes, scores = detector(picture)
        yield stream.step(picture, boxes=boxes, scores=scores)


def main() -> None:
    """Track a clip, or the drawn one."""
    clip = drawn_clip() if len(sys.argv) < 2 else read_clip(sys.argv[1])
    for result in track(samgraph.load(), clip, MotionDetector()):
        where = [tuple(map(int, box)) for box in result.boxes]
        print(result.index, dict(zip(result.objects, where, strict=True)))


if __name__ == "__main__":
    main()
