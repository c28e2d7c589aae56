"""Run in a child process by `test_bf16.py`: bf16 kernels can kill the process that runs them.

Prints a JSON object: ops whose results are outside the tolerance of bf16, and how far exact and
other nodes are from fp32.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

from samgraph import ops
from samgraph.engines import EngineOptions, find_engine
from samgraph.engines.openvino.passes import products_in_bf16
from samgraph.graph import Builder, Graph, Tensor
from samgraph.graph.types import Array
from samgraph.passes import fold_params, optimise, passes_for
from samgraph.runtime import CompileOptions, Session
from tests.ops.agreement import disagreement, join, run_on
from tests.ops.cases import CASES, Case, batches
from tests.tolerances import OP_BF16

QUICK = settings(
    max_examples=2, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def representable(case: Case) -> Case:
    """The same case with floats of ordinary size that bf16 holds, so that only sums are rounded."""
    arrays = [
        (x / 3).astype(ml_dtypes.bfloat16).astype(x.dtype) if x.dtype == np.float32 else x
        for x in case.arrays
    ]
    return replace(case, arrays=tuple(np.asarray(x) for x in arrays))


def run_in_bf16(
    graph: Graph, weights: dict[str, Array], inputs: dict[str, Array]
) -> dict[str, Array]:
    engine = find_engine("openvino")
    folded = fold_params(optimise(graph, passes_for(engine.passes, "bf16")))
    program = engine.compile(folded.graph, folded.bind(weights), EngineOptions("bf16", 1))
    return {name: engine.buffers.download(x) for name, x in program.run(inputs).items()}


def check_ops() -> list[str]:
    problems: list[str] = []

    def check(drawn: Sequence[Case]) -> None:
        uses = [representable(case) for case in drawn]
        expected = run_on("reference", uses)
        graph, inputs, weights = join(uses)
        actual = run_in_bf16(graph, weights, inputs)
        for number, (case, want) in enumerate(zip(uses, expected, strict=True)):
            problem = disagreement(actual[f"case{number}"], want, OP_BF16)
            if problem:
                problems.append(f"{case}: {problem}")

    for op in CASES:
        QUICK(given(batches(op, ("f32",)))(check))()
    return problems


def check_exact() -> dict[str, float]:
    """Largest differences to fp32, as a part of the largest value: exact nodes, and others."""
    builder = Builder("exact")
    x = builder.input("x", "f32[M,64]")

    def layers(x: Tensor, name: str) -> Tensor:
        for number in range(3):
            weight = builder.param(f"{name}.{number}", "f32[64,64]")
            x = ops.sin(ops.linear(x, weight) * 3)
        return x

    with builder.exact():
        exact = layers(x, "exact")
    rest = layers(x, "rest")
    mixed = layers(exact, "mixed")
    graph = builder.finish(exact=exact, rest=rest, mixed=mixed)
    rng = np.random.default_rng(0)
    weights = {v.name: rng.standard_normal((64, 64)).astype(np.float32) / 8 for v in graph.params}
    inputs = {"x": rng.standard_normal((20, 64)).astype(np.float32)}
    session = Session("cpu", CompileOptions(threads=1, cache=False))
    full, half = session.compile(graph, weights).run(inputs), run_in_bf16(graph, weights, inputs)
    return {
        name: float(np.abs(half[name] - want).max() / np.abs(want).max())
        for name, want in full.items()
    }


if __name__ == "__main__":
    products_in_bf16._LEAST = products_in_bf16._REUSE = 0  # the smallest products as well
    print(json.dumps({"problems": check_ops(), **check_exact()}))
