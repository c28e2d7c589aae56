"""The prompts of a tracking job, by object and frame."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.predict.video.prompts import ObjectId


@dataclass(frozen=True, slots=True, eq=False)
class FramePrompt:
    """The prompt for one object on one frame: points and a box in pixels, or a mask [H, W]."""

    points: tuple[tuple[float, ...], ...] = ()
    labels: tuple[int, ...] = ()
    box: tuple[float, ...] | None = None
    mask: NDArray[np.bool_] | None = None

    def described(self) -> dict[str, Any]:
        """For the record of the run; a mask is known by its digest."""
        mask = None if self.mask is None else hashlib.sha256(self.mask.tobytes()).hexdigest()[:16]
        return {"points": self.points, "labels": self.labels, "box": self.box, "mask": mask}

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `Video.add`."""
        if self.mask is not None:
            return {"mask": self.mask}
        clicks = {"points": self.points, "labels": self.labels} if self.points else {}
        return {"box": self.box, **clicks}


Prompts: TypeAlias = Mapping[tuple[ObjectId, int], FramePrompt]
