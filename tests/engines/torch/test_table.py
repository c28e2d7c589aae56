"""The table of ops on the torch engine: every dtype, every length, on the CPU and on a GPU.

`tests/ops/test_table.py` tries more uses in the dtypes that all engines have.
"""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from samgraph.errors import InputError
from samgraph.graph.types import FLOATS, Array, DType, numpy_dtype
from samgraph.ops import OPS
from samgraph.runtime import CompiledGraph, CompileOptions, Session
from tests.engines.torch_devices import devices, on_torch
from tests.ops.agreement import disagreement, join
from tests.ops.cases import CASES, TAKES, Case, batches
from tests.ops.test_symbolic import SIZES, USES, _array, _graph

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

TABLE = [(op, dtype) for op in CASES for dtype in (*sorted(FLOATS), *TAKES.get(op, ()))]


def test_every_op_has_a_rule() -> None:
    from samgraph.engines.torch.rules import RULES

    assert set(RULES) | {"constant"} == set(OPS)


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize(("op", "dtype"), TABLE)
def test_torch_agrees_with_the_reference(op: str, dtype: DType, device: str) -> None:
    @settings(max_examples=1, phases=[Phase.generate])
    @given(batches(op, (dtype,)))
    def check(drawn: list[Case]) -> None:
        graph, inputs, weights = join(drawn)
        plain = CompileOptions(engine="reference", profile="plain", cache=False)
        expected = Session("cpu", plain).compile(graph, weights).run_numpy(inputs)
        for name, value in graph.outputs:  # numpy has no clip of bf16: its reference gives float32
            expected[name] = expected[name].astype(numpy_dtype(value.type.dtype))
        actual = on_torch(device, graph, weights, profile="plain").run_numpy(inputs)
        found = [
            f"{case}: {problem}"
            for number, case in enumerate(drawn)
            if (problem := disagreement(actual[f"case{number}"], expected[f"case{number}"]))
        ]
        assert not found, "\n".join(found)

    check()


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize(
    ("op", "number"), [(op, number) for op, uses in USES.items() for number in range(len(uses))]
)
def test_one_compiled_graph_serves_every_length(
    op: str, number: int, device: str, rng: np.random.Generator
) -> None:
    graph = _graph(op, USES[op][number])
    reference = Session("cpu", CompileOptions(engine="reference", cache=False)).compile(graph)
    compiled = on_torch(device, graph)

    for sizes in SIZES:
        inputs = {v.name: _array(rng, v.type, sizes) for v in graph.inputs}
        expected, actual = _run(reference, inputs), _run(compiled, inputs)
        if isinstance(expected, str) or isinstance(actual, str):  # both refuse, in equal words
            assert actual == expected
        else:
            problem = disagreement(actual, expected)
            assert problem is None, f"{op} {USES[op][number]} at {sizes}: {problem}"


def _run(compiled: CompiledGraph, inputs: Mapping[str, Array]) -> Array | str:
    """The result, or the message of the refusal."""
    try:
        return compiled.run_numpy(inputs)["y"]
    except InputError as error:
        return str(error)
