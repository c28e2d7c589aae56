"""A mistake in the reference of an op: the comparison of the table test must see it.

A fault is put in the place of the real reference, and the comparison, over the same random uses,
must report it. With no fault it must report nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import Phase, given, settings

from samgraph.graph.types import Array
from samgraph.ops import OPS
from tests.ops.agreement import disagreement, run_on
from tests.ops.cases import Case, batches
from tests.ops.faults import IN_REFERENCES, Reference


@cache
def uses(op: str) -> tuple[Case, ...]:
    """The uses of an op that the table test draws."""
    found: list[Case] = []

    @settings(max_examples=3, phases=[Phase.generate])
    @given(batches(op, ("f32",)))
    def draw(drawn: list[Case]) -> None:
        found.extend(drawn)

    draw()
    return tuple(found)


@cache
def from_openvino(op: str) -> tuple[Array, ...]:
    return tuple(run_on("openvino", uses(op)))


def seen(actual: Sequence[Array], expected: Sequence[Array]) -> int:
    """In how many uses the comparison of the table test reports something."""
    return sum(disagreement(a, b) is not None for a, b in zip(actual, expected, strict=True))


@contextmanager
def planted(op: str, reference: Reference) -> Iterator[None]:
    true = OPS[op]
    OPS[op] = replace(true, reference=reference)
    try:
        yield
    finally:
        OPS[op] = true


@pytest.mark.parametrize(("op", "fault"), IN_REFERENCES, ids=[f.__name__ for _, f in IN_REFERENCES])
def test_a_fault_in_a_reference_is_seen(op: str, fault: Reference) -> None:
    actual = from_openvino(op)

    assert seen(actual, run_on("reference", uses(op))) == 0
    with planted(op, fault):
        assert seen(actual, run_on("reference", uses(op))) > 0
