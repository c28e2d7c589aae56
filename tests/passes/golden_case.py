"""Graphs written for a pass each; `test_golden.py` compares what the pass makes of them."""

from collections.abc import Callable

from samgraph.graph import Graph

CASES: dict[str, tuple[str, Callable[[], Graph]]] = {}


def case(step: str) -> Callable[[Callable[[], Graph]], Callable[[], Graph]]:
    """Register a graph for the pass `step`; the golden file is called after the function."""

    def add(make: Callable[[], Graph]) -> Callable[[], Graph]:
        CASES[make.__name__] = (step, make)
        return make

    return add
