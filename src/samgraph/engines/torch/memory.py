"""A device without memory left: torch's error as ours, wherever torch may raise it."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from samgraph.errors import DeviceMemoryError

P = ParamSpec("P")
R = TypeVar("R")


def device_is_full(what: str, error: object) -> DeviceMemoryError:
    """What to tell a user whose GPU has no memory left for something."""
    return DeviceMemoryError(
        f"the GPU has no memory left for {what}",
        got=str(error).strip().split(". ")[0],
        hint='run fewer objects or images at once, or use device="cpu"',
    )


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch had no memory left; of an Apple GPU it says so in words only."""
    return isinstance(error, torch.OutOfMemoryError) or "MPS backend out of memory" in str(error)


def reports_full(method: Callable[P, R]) -> Callable[P, R]:
    """The method, whose error where there is no memory left is a `DeviceMemoryError`."""

    @wraps(method)
    def guarded(*given: P.args, **named: P.kwargs) -> R:
        try:
            return method(*given, **named)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            full = device_is_full(f"`{method.__name__}`", error)
        raise full  # here, where what the method had made is let go

    return guarded
