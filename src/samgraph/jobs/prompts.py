"""The prompts of a job: all that was given for one object on one frame."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Given:
    """All that was said about one object on one frame."""

    points: list[tuple[float, ...]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    box: tuple[float, ...] | None = None
    mask: NDArray[np.bool_] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said."""
        return not self.points and self.box is None and self.mask is None

    def described(self) -> dict[str, Any]:
        """For the record of the run."""
        mask = None if self.mask is None else hashlib.sha256(self.mask.tobytes()).hexdigest()[:16]
        return {"points": self.points, "labels": self.labels, "box": self.box, "mask": mask}

    def arguments(self) -> dict[str, Any]:
        """For `Video.add`."""
        if self.mask is not None:
            return {"mask": self.mask}
        clicks = {"points": self.points, "labels": self.labels} if self.points else {}
        return {"box": self.box, **clicks}
