"""Approximations: named ways to compute less than the model says. None is ever a default.

    samgraph.load("sam2.1-tiny", approximation="pooled-memory")
    samgraph track clip.mp4 --approximate pooled-memory ...

What each costs in quality, and gains, is in docs/performance.md; `samgraph bench` shows the
gain on this machine. A family says which of them it has (`Family.approximations`).
"""

from dataclasses import dataclass
from difflib import get_close_matches

from samgraph.errors import OptionError
from samgraph.untrusted.text import shown


@dataclass(frozen=True, slots=True)
class Approximation:
    """A named way to compute less.

    Args:
        name: Its name for users.
        does: What is computed instead, in a line.
        costs: What is lost, in a line.
        memory_pool: The side of the squares of cells that remembered frames, but the last, are
            averaged over.
        tracked_frames: The most tracked frames whose mask memory a frame reads; None: as the
            memory policy says.
        input_divisor: By how much the side of the model's input is divided.
    """

    name: str
    does: str
    costs: str
    memory_pool: int = 1
    tracked_frames: int | None = None
    input_divisor: int = 1


APPROXIMATIONS: dict[str, Approximation] = {
    one.name: one
    for one in (
        Approximation(
            "pooled-memory",
            "remembered frames but the last are averages of 2 x 2 cells, with the weight of four",
            "fine detail of older frames",
            memory_pool=2,
        ),
        Approximation(
            "few-memories",
            "a frame reads its prompted frames and the last two, not the last six",
            "objects that were occluded or absent for a while are found again less often",
            tracked_frames=2,
        ),
        Approximation(
            "small-input",
            "images and frames are resized to half the side the model was trained with",
            "small objects, and the sharpness of outlines",
            input_divisor=2,
        ),
    )
}


def find_approximation(name: str) -> Approximation:
    """The approximation of that name."""
    found = APPROXIMATIONS.get(name) if isinstance(name, str) else None
    if found is None:
        near = get_close_matches(str(name)[:80], APPROXIMATIONS, n=1) or list(APPROXIMATIONS)
        raise OptionError(
            f"there is no approximation `{shown(str(name)[:80])}`", expected=", ".join(near)
        )
    return found
