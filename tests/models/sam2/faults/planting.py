"""Mistakes that ports of SAM 2 have made, or could make. Each is planted by patching the model.

A fault names the parts whose comparison must find it: keys of `components.PARTS`, `quiet`, or a
graph of `wiring`. Most are planted on the functions the model is made of, some on the ops it is
written in, and those of rotary encoding on the op's meaning itself, which the reference engine
runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from samgraph import ops
from samgraph.graph import Tensor

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is planted, and where it must show."""

    plant: Plant
    parts: tuple[str, ...]
    config: str


FAULTS: dict[str, Fault] = {}


def fault(*parts: str, config: str = "test") -> Callable[[Plant], Plant]:
    """Register a fault under the name of its function."""

    def register(plant: Plant) -> Plant:
        FAULTS[plant.__name__] = Fault(plant, parts, config)
        return plant

    return register


def wrap(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a function by `change(original, *arguments)`."""
    original = getattr(owner, name)

    def changed(*arguments: Any, **named: Any) -> Any:
        return change(original, *arguments, **named)

    patch.setattr(owner, name, changed)


def resize_otherwise(patch: Patch, before: str, after: str) -> None:
    """Let `resize` do `after` where it is asked for `before`."""

    def resize(original: Any, x: Tensor, size: Any, *, how: str, **named: Any) -> Any:
        return original(x, size, how=after if how == before else how, **named)

    wrap(patch, ops, "resize", resize)
