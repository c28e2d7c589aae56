"""The comparison that all tests of numbers share: many uses of ops in one graph, on an engine."""

from collections.abc import Sequence

import numpy as np

from samgraph.graph import Builder, Graph, Tensor
from samgraph.graph.types import Array, dtype_of
from samgraph.runtime import CompileOptions, Session
from tests.ops.cases import Case
from tests.tolerances import OP_BF16, OP_FP16, OP_FP32

TOLERANCE = {"f32": OP_FP32, "f64": OP_FP32, "f16": OP_FP16, "bf16": OP_BF16}


def disagreement(
    actual: Array, expected: Array, tolerance: tuple[float, float] | None = None
) -> str | None:
    """What is wrong with `actual`, in a sentence; None where it is right.

    `tolerance` is (absolute, relative); if not given, that of the dtype of `expected`.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    dtype = dtype_of(expected)
    if dtype not in TOLERANCE:
        wrong = int(np.count_nonzero(actual != expected))
        return f"{wrong} of {expected.size} elements differ" if wrong else None
    absolute, relative = tolerance or TOLERANCE[dtype]
    got, want = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= absolute + relative * np.abs(want)
    right = near | (got == want) | (np.isnan(got) & np.isnan(want))
    if right.all():
        return None
    index = np.unravel_index(int(np.argmin(right)), right.shape)
    count = int(np.count_nonzero(~right))
    return f"{count} of {want.size} differ: at {index}, {got[index]:.9g} for {want[index]:.9g}"


def join(cases: Sequence[Case]) -> tuple[Graph, dict[str, Array], dict[str, Array]]:
    """One graph with an output for each case, its inputs, and its weights."""
    builder = Builder("cases")
    inputs: dict[str, Array] = {}
    weights: dict[str, Array] = {}
    outputs: dict[str, Tensor] = {}
    for number, case in enumerate(cases):
        tensors = []
        for index, (array, type) in enumerate(zip(case.arrays, case.types, strict=True)):
            name = f"case{number}.{index}"
            is_param = index >= len(case.arrays) - case.fixed
            (weights if is_param else inputs)[name] = array
            tensors.append(builder.param(name, type) if is_param else builder.input(name, type))
        result = builder.emit(case.op, *tensors, like=None, **case.attributes)
        outputs[f"case{number}"] = result
    return builder.finish(outputs), inputs, weights


def run_on(engine: str, cases: Sequence[Case], profile: str = "plain") -> list[Array]:
    """The result of every case, compiled as one graph; `plain`: by the rules of the ops alone."""
    graph, inputs, weights = join(cases)
    options = CompileOptions(engine=engine, profile=profile, threads=1, cache=False)
    results = Session("cpu", options).compile(graph, weights).run_numpy(inputs)
    return [results[f"case{number}"] for number in range(len(cases))]


def disagreements(engine: str, cases: Sequence[Case], profile: str = "plain") -> list[str]:
    """Every case in which `engine` does not agree with the reference, in words."""
    expected, actual = run_on("reference", cases), run_on(engine, cases, profile)
    found = []
    for case, want, got in zip(cases, expected, actual, strict=True):
        problem = disagreement(got, want)
        if problem:
            found.append(f"{case}: {problem}")
    return found
