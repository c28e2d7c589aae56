"""J, F and J&F of the DAVIS benchmark (Perazzi et al. 2016).

    J   region similarity: the IoU of predicted and true mask
    F   contour accuracy: the F-measure of precision and recall of boundary pixels, where a pixel
        matches if the other boundary is within 0.8 % of the image's diagonal

An object's score is the mean over frames without the first, which is given, and the last, which
the benchmark excludes (of two frames it counts); the overall score is the mean over objects.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
BACKGROUND, IGNORED = 0, 255
_REACH = 0.008


@dataclass(frozen=True, slots=True)
class Figures:
    """J and F of one object, one sequence, or all."""

    j: float
    f: float

    @property
    def j_and_f(self) -> float:
        """The mean of both."""
        return (self.j + self.f) / 2


def region_similarity(truth: Mask, found: Mask) -> float:
    """J: intersection over union; 1 where both are empty."""
    union = int(np.count_nonzero(truth | found))
    return int(np.count_nonzero(truth & found)) / union if union else 1.0


def contour_accuracy(truth: Mask, found: Mask) -> float:
    """F: the F-measure of the two boundaries; 1 where both are empty, 0 where one is."""
    edges = boundary(truth), boundary(found)
    lengths = [int(np.count_nonzero(edge)) for edge in edges]
    if 0 in lengths:
        return 1.0 if lengths == [0, 0] else 0.0
    radius = math.ceil(_REACH * math.hypot(*truth.shape))
    recall = np.count_nonzero(edges[0] & dilate(edges[1], radius)) / lengths[0]
    precision = np.count_nonzero(edges[1] & dilate(edges[0], radius)) / lengths[1]
    total = precision + recall
    return float(2 * precision * recall / total) if total else 0.0


def boundary(mask: Mask) -> Mask:
    """Pixels that differ from their right, lower, or lower right neighbour."""
    padded = np.pad(mask, ((0, 1), (0, 1)), mode="edge")
    right, below, both = padded[:-1, 1:], padded[1:, :-1], padded[1:, 1:]
    edge: Mask = (mask != right) | (mask != below) | (mask != both)
    return edge


def dilate(mask: Mask, radius: int) -> Mask:
    """Every pixel within `radius` of a set pixel."""
    height, width = mask.shape
    grown = np.zeros_like(mask)
    sums = np.zeros((height, width + 1), np.int32)
    np.cumsum(mask, axis=1, out=sums[:, 1:])
    columns = np.arange(width)
    for dy in range(-min(radius, height - 1), min(radius, height - 1) + 1):
        reach = math.isqrt(radius * radius - dy * dy)
        right = np.minimum(columns + reach + 1, width)
        rows = (sums[:, right] - sums[:, np.maximum(columns - reach, 0)]) > 0
        into = slice(max(0, dy), height + min(0, dy))
        grown[into] |= rows[max(0, -dy) : height - max(0, dy)]
    return grown


def sequence_figures(
    truth: Sequence[NDArray[Any]], found: Mapping[int, Sequence[Mask]]
) -> dict[int, Figures]:
    """The figures of every object, from label maps per frame, and masks per object and frame.

    The objects are those of the first label map; 0 is background and 255 is ignored. The first
    frame is given and never counts, nor does the last of three or more. Where only the first is
    annotated there is nothing to count, and no figure.
    """
    inner = range(1, len(truth) - 1) if len(truth) > 2 else range(1, len(truth))
    figures: dict[int, Figures] = {}
    if not inner:
        return figures
    for label in object_labels(truth[0]):
        pairs = [(truth[i] == label, found[label][i]) for i in inner]
        figures[label] = Figures(
            float(np.mean([region_similarity(*pair) for pair in pairs])),
            float(np.mean([contour_accuracy(*pair) for pair in pairs])),
        )
    return figures


def object_labels(labels: NDArray[Any]) -> list[int]:
    """The objects of a label map."""
    return [int(label) for label in np.unique(labels) if label not in (BACKGROUND, IGNORED)]


def copied_figures(truth: Sequence[NDArray[Any]]) -> dict[int, Figures]:
    """The figures of copying the first frame's mask to every frame."""
    first = truth[0]
    return sequence_figures(
        truth, {label: [first == label] * len(truth) for label in object_labels(first)}
    )


def mean_figures(figures: Sequence[Figures]) -> Figures:
    """The mean over objects."""
    return Figures(
        float(np.mean([item.j for item in figures])), float(np.mean([item.f for item in figures]))
    )


def box_of(mask: Mask) -> tuple[float, float, float, float]:
    """The box around a mask: left, top, right, bottom."""
    rows, columns = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
