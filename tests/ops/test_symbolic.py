"""Every op with symbolic dimensions: compiled once, run at several lengths, none included."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from samgraph.errors import InputError
from samgraph.graph import Builder, Graph, TensorType, parse_type, symbol
from samgraph.graph.dims import evaluate
from samgraph.graph.graph import Attribute, Literal
from samgraph.graph.types import INTEGERS, Array, numpy_dtype
from samgraph.ops import OPS
from samgraph.runtime import CompiledGraph, CompileOptions, Session
from tests.engines.present import ENGINES
from tests.ops.agreement import disagreement

M, N = symbol("M"), symbol("N")
JUDGED = tuple(name for name in ENGINES if name not in ("reference", "torch"))
SIZES = ({"M": 3, "N": 2}, {"M": 6, "N": 1}, {"M": 1, "N": 4}, {"M": 8, "N": 0}, {"M": 0, "N": 3})


@dataclass(frozen=True)
class Use:
    """One use of an op: types as they print, and attributes."""

    types: str
    attributes: dict[str, Attribute] = field(default_factory=dict)


def _pairwise(*sides: str) -> tuple[Use, ...]:
    return tuple(Use(side) for side in sides)


_UNARY = _pairwise("f32[M]", "f32[N,4,M]")
_BINARY = _pairwise("f32[M,3] f32[3]", "f32[N,1] f32[M]", "f32[N,M] f32[N,M]")

USES: dict[str, tuple[Use, ...]] = {
    "add": _BINARY,
    "attention": (
        Use("f32[N,5,8] f32[N,M,8] f32[N,M,4]", {"heads": 1, "scale": 0.5}),
        Use("f32[N,M,8] f32[N,M+2,8] f32[N,M+2,8]", {"heads": 2, "scale": 1.0}),
        Use("f32[M,6] f32[4,6] f32[4,3] f32[M,4]", {"heads": 3, "scale": 0.3}),
    ),
    "axial_rope": (
        Use("f32[N,6*M,8]", {"grid": (2, 3), "theta": 10000.0, "heads": 2, "unrotated": 0}),
        Use("f32[4*M+N,4]", {"grid": (2, 2), "theta": 100.0, "heads": 1, "unrotated": N}),
        Use(
            "f32[M+4,4]",
            {"grid": (2, 2), "theta": 100.0, "heads": 1, "unrotated": 0, "pooled": M},
        ),
    ),
    "cast": (Use("f32[M]", {"dtype": "i64"}), Use("i64[N,M]", {"dtype": "f16"})),
    "clip": tuple(Use(use.types, {"low": -1.0, "high": 1.0}) for use in _UNARY),
    "compare": tuple(Use(use.types, {"how": "lt"}) for use in _BINARY),
    "concat": (
        Use("f32[M,2] f32[N,2] f32[3,2]", {"axis": 0}),
        Use("f32[2,M] f32[2,M]", {"axis": -1}),
    ),
    "constant": (Use("", {"value": Literal(np.arange(3))}),),
    "conv2d": (
        Use(
            "f32[N,2,M+2,2*M+3] f32[4,2,3,3] f32[4]",
            {"stride": (1, 2), "padding": (0, 1), "groups": 1},
        ),
        Use("f32[1,4,M,5] f32[4,1,2,2]", {"stride": (2, 1), "padding": (1, 0), "groups": 4}),
    ),
    "conv_transpose2d": (Use("f32[N,3,M,2] f32[3,2,2,2] f32[2]", {"stride": (2, 2)}),),
    "cos": _UNARY,
    "div": _BINARY,
    "exp": _UNARY,
    "expand": (
        Use("f32[1,4]", {"shape": (M, 4)}),
        Use("f32[N,1]", {"shape": (2, N, M)}),
        Use("f32[]", {"shape": (M, N)}),
    ),
    "gather": (
        Use("f32[M,3] i64[N]", {"axis": 0, "batch": 0}),
        Use("f32[N,4,2] i64[N,M]", {"axis": 1, "batch": 1}),
        Use("f32[N,2,M] i32[N]", {"axis": -1, "batch": 1}),
    ),
    "gelu": _UNARY,
    "layer_norm": (Use("f32[N,M,6] f32[6] f32[6]", {"eps": 1e-6}),),
    "layer_norm_2d": (Use("f32[N,6,M,2] f32[6] f32[6]", {"eps": 1e-6}),),
    "linear": (
        Use("f32[N,M,4] f32[3,4] f32[3]"),
        Use("f32[M,4] f32[3,4]", {"activation": "gelu"}),
    ),
    "log": _UNARY,
    "matmul": _pairwise("f32[N,M,3] f32[3,4]", "f32[2,M] f32[M,N]", "f32[N,2,M] f32[N,M,2]"),
    "max_pool2d": (
        Use("f32[N,2,2*M,4]", {"kernel": (2, 2), "stride": (2, 2)}),
        Use("f32[1,1,M,M+4]", {"kernel": (1, 3), "stride": (2, 1)}),
    ),
    "maximum": _BINARY,
    "minimum": _BINARY,
    "mul": _BINARY,
    "pad": (Use("f32[M,N]", {"before": (1, 0), "after": (0, 2), "value": 0.5}),),
    "reduce": (
        Use("f32[N,M,3]", {"axes": (0, 2), "how": "sum", "keep": False}),
        Use("f32[M,4]", {"axes": (1,), "how": "argmax", "keep": True}),
        Use("f32[2,M]", {"axes": (1,), "how": "max", "keep": False}),
        Use("f32[M,3,2]", {"axes": (0, 2), "how": "argmax", "keep": False}),
        Use("f32[M,2]", {"axes": (-1,), "how": "mean", "keep": True}),
    ),
    "relu": _UNARY,
    "reshape": (
        Use("f32[N,4,M]", {"shape": (N, 2, 2 * M)}),
        Use("f32[M,6]", {"shape": (-1, 3)}),
        Use("f32[N,M]", {"shape": (M * N,)}),
        Use("f32[2*M,N,2]", {"shape": (M, 2, -1, 1)}),
    ),
    "resize": (
        Use("f32[N,2,M,5]", {"size": (2 * M + 1, 7), "how": "bilinear", "antialias": False}),
        Use("f32[1,2,M,5]", {"size": (9, M + 2), "how": "nearest", "antialias": False}),
        Use("f32[1,1,M,M+1]", {"size": (4, 4), "how": "bicubic", "antialias": False}),
        Use("f32[1,2,M,9]", {"size": (3, 4), "how": "bilinear", "antialias": True}),
    ),
    "sigmoid": _UNARY,
    "sin": _UNARY,
    "slice": (
        Use("f32[M,4]", {"starts": (1, 0), "ends": (M, 2), "steps": (1, 1)}),
        Use("f32[M+N,3]", {"starts": (M, 0), "ends": (M + N, 3), "steps": (1, 2)}),
        Use("f32[2*M]", {"starts": (0,), "ends": (2 * M,), "steps": (2,)}),
        Use("f32[M]", {"starts": (0,), "ends": (3,), "steps": (1,)}),
    ),
    "softmax": (Use("f32[N,M]", {"axis": -1}), Use("f32[M,3]", {"axis": 0})),
    "sqrt": _UNARY,
    "sub": _BINARY,
    "tile": (Use("f32[2,N]", {"counts": (M, 2)}), Use("f32[M]", {"counts": (3,)})),
    "transpose": (Use("f32[N,M,2]", {"axes": (2, 0, 1)}),),
    "where": _pairwise("bool[N,1] f32[N,M] f32[M]"),
}


def test_every_op_has_a_symbolic_use() -> None:
    assert set(USES) == set(OPS)


@pytest.mark.parametrize(
    ("op", "number"), [(op, number) for op, uses in USES.items() for number in range(len(uses))]
)
@pytest.mark.parametrize("engine", JUDGED)
def test_one_compiled_graph_serves_every_length(
    engine: str, op: str, number: int, rng: np.random.Generator
) -> None:
    graph = _graph(op, USES[op][number])
    reference, judged = _compile(graph, "reference"), _compile(graph, engine)

    for sizes in SIZES:
        inputs = {v.name: _array(rng, v.type, sizes) for v in graph.inputs}
        expected, actual = (_run(compiled, inputs) for compiled in (reference, judged))
        if isinstance(expected, str) or isinstance(actual, str):  # both refuse, in equal words
            assert actual == expected
        else:
            problem = disagreement(actual, expected)
            assert problem is None, f"{op} {USES[op][number]} at {sizes}: {problem}"


def _graph(op: str, use: Use) -> Graph:
    builder = Builder(op)
    for name in ("M", "N"):
        builder.input(f"size_{name}", f"f32[{name}]")
    types = [parse_type(text) for text in use.types.split()]
    tensors = [builder.input(f"x{i}", type) for i, type in enumerate(types)]
    return builder.finish(y=builder.emit(op, *tensors, like=None, **use.attributes))


def _compile(graph: Graph, engine: str) -> CompiledGraph:
    return Session("cpu", CompileOptions(engine=engine, threads=1, cache=False)).compile(graph)


def _run(compiled: CompiledGraph, inputs: Mapping[str, Array]) -> Array | str:
    """The result, or the message of the refusal."""
    try:
        return compiled.run_numpy(inputs)["y"]
    except InputError as error:
        return str(error)


def _array(rng: np.random.Generator, type: TensorType, sizes: Mapping[str, int]) -> Array:
    shape = [evaluate(dim, sizes) for dim in type.shape]
    if type.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if type.dtype in INTEGERS:
        return rng.integers(-2, 3, shape).astype(numpy_dtype(type.dtype))
    return rng.uniform(0.25, 3, shape).astype(numpy_dtype(type.dtype))
