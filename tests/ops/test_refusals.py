"""What an op refuses, it refuses while the graph is built, and says which shapes it was given."""

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from samgraph.errors import GraphError, ShapeError
from samgraph.graph import parse_type
from samgraph.graph.registry import infer
from samgraph.graph.types import DTYPES, numpy_dtype, type_of
from samgraph.ops import OPS
from tests.ops.cases import CASES, Case
from tests.ops.drawing import Draw, flag, number, pick

CONV: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "groups": 1}
ROPE: dict[str, Any] = {"grid": (2, 2), "theta": 10000.0, "heads": 1, "unrotated": 0}
SIZE: dict[str, Any] = {"size": (2, 2), "how": "bilinear", "antialias": False}

# op, types, attributes: each breaks one rule
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("add", "f32[2,3] f32[2,4]", {}),
    ("add", "f32[2] i64[2]", {}),
    ("add", "bool[2] bool[2]", {}),
    ("add", "f32[M] f32[N]", {}),
    ("sub", "f32[3] f32[2]", {}),
    ("mul", "f32[3] f16[3]", {}),
    ("div", "i64[2] i64[2]", {}),
    ("maximum", "f32[3] f32[4]", {}),
    ("minimum", "f32[3] f32[4]", {}),
    ("attention", "f32[2,8] f32[3,4] f32[3,8]", {"heads": 1, "scale": 1.0}),
    ("attention", "f32[2,8] f32[3,8] f32[4,8]", {"heads": 1, "scale": 1.0}),
    ("attention", "f32[2,8] f32[3,8] f32[3,8]", {"heads": 3, "scale": 1.0}),
    ("attention", "f32[2,8] f32[3,8] f32[3,8]", {"heads": 0, "scale": 1.0}),
    ("attention", "f32[2,8] f32[3,8] f32[3,8]", {"heads": 1, "scale": 0.0}),
    ("attention", "f32[2,8] f32[0,8] f32[0,8]", {"heads": 1, "scale": 1.0}),
    ("attention", "f32[2,8] f32[3,8] f32[3,8] f32[2,2]", {"heads": 1, "scale": 1.0}),
    ("attention", "f32[2,8] f32[3,8] f32[3,8] f32[5,1,2,3]", {"heads": 1, "scale": 1.0}),
    ("attention", "f32[1,2,8] f32[3,8] f32[3,8]", {"heads": 1, "scale": 1.0}),
    ("axial_rope", "f32[5,4]", ROPE),
    ("axial_rope", "f32[4,6]", ROPE),
    ("axial_rope", "f32[4]", ROPE),
    ("axial_rope", "f32[4,4]", ROPE | {"unrotated": 8}),
    ("axial_rope", "f32[4,4]", ROPE | {"heads": 0}),
    ("axial_rope", "f32[4,4]", ROPE | {"grid": (0, 2)}),
    ("axial_rope", "f32[4,4]", ROPE | {"grid": (1, 2), "pooled": 2}),
    ("axial_rope", "f32[9,4]", ROPE | {"grid": (4, 2), "pooled": 1}),
    ("cast", "f32[2]", {"dtype": "f8"}),
    ("clip", "f32[2]", {"low": 1.0, "high": 0.0}),
    ("clip", "i64[2]", {"low": 0.0, "high": 1.0}),
    ("compare", "f32[2] f32[3]", {"how": "eq"}),
    ("compare", "f32[2] f32[2]", {"how": "like"}),
    ("concat", "f32[2,3] f32[2,4]", {"axis": 0}),
    ("concat", "f32[2,3] f32[2]", {"axis": 0}),
    ("concat", "f32[2,3] f32[2,3]", {"axis": 2}),
    ("concat", "", {"axis": 0}),
    ("conv2d", "f32[1,3,8,8] f32[4,2,3,3]", CONV),
    ("conv2d", "f32[1,3,8,8] f32[4,3,9,3]", CONV),
    ("conv2d", "f32[1,3,8,8] f32[4,3,M,3]", CONV),
    ("conv2d", "f32[1,3,8,8] f32[4,3,3,3] f32[3]", CONV),
    ("conv2d", "f32[3,8,8] f32[4,3,3,3]", CONV),
    ("conv2d", "f32[1,4,8,8] f32[3,2,3,3]", CONV | {"groups": 2}),
    ("conv2d", "f32[1,3,8,8] f32[4,3,3,3]", CONV | {"stride": (0, 1)}),
    ("conv2d", "f32[1,3,8,8] f32[4,3,3,3]", CONV | {"padding": (-1, 0)}),
    ("conv2d", "f32[1,3,0,8] f32[4,3,1,3]", CONV | {"padding": (1, 0)}),
    ("conv_transpose2d", "f32[1,3,4,4] f32[2,3,2,2]", {"stride": (2, 2)}),
    ("conv_transpose2d", "f32[1,3,4,4] f32[3,2,2,2] f32[3]", {"stride": (2, 2)}),
    ("conv_transpose2d", "f32[1,3,4,4] f32[3,2,2,2]", {"stride": (0, 2)}),
    ("expand", "f32[2,3]", {"shape": (2, 4)}),
    ("expand", "f32[2,3]", {"shape": (3,)}),
    ("gather", "f32[2,3] f32[2]", {"axis": 0, "batch": 0}),
    ("gather", "f32[2,3] i64[3]", {"axis": 1, "batch": 1}),
    ("gather", "f32[2,3] i64[3]", {"axis": 2, "batch": 0}),
    ("gather", "f32[2,0] i64[3]", {"axis": 1, "batch": 0}),
    ("layer_norm", "f32[2,3] f32[2] f32[3]", {"eps": 1e-6}),
    ("layer_norm", "f32[2,3] f32[3] f32[2]", {"eps": 1e-6}),
    ("layer_norm", "f32[2,3] f32[3] f32[3]", {"eps": 0.0}),
    ("layer_norm", "f32[2,0] f32[0] f32[0]", {"eps": 1e-6}),
    ("layer_norm_2d", "f32[1,3,2,2] f32[2] f32[3]", {"eps": 1e-6}),
    ("layer_norm_2d", "f32[3,2,2] f32[2] f32[2]", {"eps": 1e-6}),
    ("linear", "f32[2,3] f32[4,2]", {}),
    ("linear", "f32[2,3] f32[4,3] f32[3]", {}),
    ("linear", "f32[2,3] f32[4,3]", {"activation": "tanh"}),
    ("linear", "f32[] f32[4,3]", {}),
    ("matmul", "f32[2,3] f32[4,5]", {}),
    ("matmul", "f32[3] f32[3,4]", {}),
    ("matmul", "f32[2,2,3] f32[3,3,4]", {}),
    ("max_pool2d", "f32[1,1,2,2]", {"kernel": (3, 1), "stride": (1, 1)}),
    ("max_pool2d", "f32[1,1,2,2]", {"kernel": (0, 1), "stride": (1, 1)}),
    ("pad", "f32[2,3]", {"before": (1,), "after": (1,), "value": 0.0}),
    ("pad", "f32[2]", {"before": (-1,), "after": (1,), "value": 0.0}),
    ("pad", "i64[2]", {"before": (1,), "after": (1,), "value": 0.5}),
    ("pad", "u8[2]", {"before": (1,), "after": (1,), "value": -1.0}),
    ("reduce", "f32[2,3]", {"axes": (2,), "how": "sum", "keep": False}),
    ("reduce", "f32[2,3]", {"axes": (0, -2), "how": "sum", "keep": False}),
    ("reduce", "f32[2,0]", {"axes": (1,), "how": "max", "keep": False}),
    ("reduce", "f32[2,0]", {"axes": (1,), "how": "mean", "keep": False}),
    ("reduce", "i64[2]", {"axes": (0,), "how": "mean", "keep": False}),
    ("reduce", "f32[2]", {"axes": (0,), "how": "median", "keep": False}),
    ("reshape", "f32[2,3]", {"shape": (4, 2)}),
    ("reshape", "f32[2,3]", {"shape": (-1, -1)}),
    ("reshape", "f32[2,3]", {"shape": (-1, 4)}),
    ("reshape", "f32[2,3]", {"shape": (-2, -3)}),
    ("resize", "f32[1,2,3]", SIZE),
    ("resize", "f32[1,2,3,4]", SIZE | {"size": (0, 2)}),
    ("resize", "f32[1,2,3,4]", SIZE | {"how": "lanczos"}),
    ("resize", "f32[1,2,3,4]", SIZE | {"how": "nearest", "antialias": True}),
    ("resize", "f32[1,2,0,4]", SIZE),
    ("slice", "f32[4]", {"starts": (1,), "ends": (5,), "steps": (1,)}),
    ("slice", "f32[4]", {"starts": (3,), "ends": (2,), "steps": (1,)}),
    ("slice", "f32[4]", {"starts": (0,), "ends": (2,), "steps": (0,)}),
    ("slice", "f32[4]", {"starts": (0, 0), "ends": (2, 2), "steps": (1, 1)}),
    ("softmax", "f32[2]", {"axis": 1}),
    ("softmax", "f32[]", {"axis": -1}),
    ("tile", "f32[2,3]", {"counts": (2,)}),
    ("tile", "f32[2]", {"counts": (0,)}),
    ("transpose", "f32[2,3]", {"axes": (0,)}),
    ("transpose", "f32[2,3]", {"axes": (0, 0)}),
    ("where", "f32[2] f32[2] f32[2]", {}),
    ("where", "bool[2] f32[2] i64[2]", {}),
    ("where", "bool[2] f32[2] f32[3]", {}),
    *((op, "i64[2]", {}) for op in ("cos", "exp", "gelu", "log")),
    *((op, "bool[2]", {}) for op in ("relu", "sigmoid", "sin", "sqrt")),
]


def test_every_op_refuses_something() -> None:
    assert {op for op, *_ in REFUSED} | {"constant"} == set(OPS)


@pytest.mark.parametrize(("op", "types", "attributes"), REFUSED)
def test_a_broken_rule_is_a_shape_error(op: str, types: str, attributes: dict[str, Any]) -> None:
    given_types = tuple(parse_type(text) for text in types.split())

    with pytest.raises(ShapeError) as caught:
        infer(op, given_types, attributes)

    assert caught.value.what.startswith(f"`{op}`")
    assert caught.value.expected is not None


@pytest.mark.parametrize(
    ("op", "types", "attributes"),
    [
        ("matmul", "f32[2,3] f32[4,5]", {}),
        ("linear", "f32[2,3] f32[4,2]", {}),
        ("add", "f32[2,3] f32[2,4]", {}),
        ("concat", "f32[2,3] f32[2,4]", {"axis": 0}),
        ("conv2d", "f32[1,3,8,8] f32[4,2,3,3]", CONV),
        ("conv_transpose2d", "f32[1,3,4,4] f32[2,3,2,2]", {"stride": (2, 2)}),
        ("attention", "f32[2,8] f32[3,4] f32[3,8]", {"heads": 1, "scale": 1.0}),
        ("where", "bool[2] f32[2] f32[3]", {}),
        ("gather", "f32[2,3] i64[3]", {"axis": 1, "batch": 1}),
    ],
)
def test_the_message_has_every_shape(op: str, types: str, attributes: dict[str, Any]) -> None:
    given_types = tuple(parse_type(text) for text in types.split())

    with pytest.raises(ShapeError) as caught:
        infer(op, given_types, attributes)

    for text in types.split():
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("op", "types", "attributes"),
    [
        ("conv2d", "f32[1,3,8,8] f32[4,3,3,3]", {"stride": 2, "padding": (0, 0), "groups": 1}),
        ("conv2d", "f32[1,3,8,8] f32[4,3,3,3]", {"stride": (), "padding": (0, 0), "groups": 1}),
        ("axial_rope", "f32[4,4]", ROPE | {"grid": (2,)}),
        ("softmax", "f32[2]", {"axis": "last"}),
        ("softmax", "f32[2]", {}),
        ("softmax", "f32[2] f32[2]", {"axis": 0}),
        ("relu", "f32[2]", {"slope": 0.1}),
        ("constant", "", {"value": 3}),
        ("transpose", "f32[2,3]", {"axes": 1}),
    ],
)
def test_wrong_arguments_are_an_error_of_ours(
    op: str, types: str, attributes: dict[str, Any]
) -> None:
    given_types = tuple(parse_type(text) for text in types.split())

    with pytest.raises(GraphError, match=f"`{op}` does not take these arguments"):
        infer(op, given_types, attributes)


@st.composite
def spoilt(draw: Draw, op: str) -> Case:
    """A valid use with one thing changed: a length, the rank, a dtype, a number of an attribute."""
    case = CASES[op](draw, "f32")
    arrays, attributes = list(case.arrays), dict(case.attributes)
    what = pick(draw, ("length", "rank", "dtype", "attribute"))
    if what == "attribute" and attributes:
        key = pick(draw, sorted(attributes))
        attributes[key] = _spoil(draw, attributes[key])
    elif arrays:
        index = number(draw, 0, len(arrays) - 1)
        type = type_of(arrays[index])
        lengths, dtype = [int(str(dim)) for dim in type.shape], type.dtype
        if what == "dtype":
            dtype = pick(draw, [other for other in DTYPES if other != "bf16"])
        elif what == "rank" and lengths and flag(draw):
            lengths.pop(number(draw, 0, len(lengths) - 1))
        elif what == "rank":
            lengths.insert(number(draw, 0, len(lengths)), number(draw, 0, 2))
        elif lengths:
            lengths[number(draw, 0, len(lengths) - 1)] = number(draw, 0, 8)
        arrays[index] = np.ones(lengths, numpy_dtype(dtype))
    return Case(op, tuple(arrays), attributes)


def _spoil(draw: Draw, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + number(draw, -3, 3)
    if isinstance(value, float):
        return value * number(draw, -1, 2)
    if isinstance(value, str):
        return value[:-1]
    if isinstance(value, tuple) and value:
        index = number(draw, 0, len(value) - 1)
        return (*value[:index], _spoil(draw, value[index]), *value[index + 1 :])
    return value


@pytest.mark.parametrize("op", sorted(CASES))
def test_rule_and_reference_agree_on_what_is_legal(op: str) -> None:
    """What the rule lets through the reference computes, and the type is as foretold."""

    @settings(max_examples=60, phases=[Phase.generate])
    @given(spoilt(op))
    def check(case: Case) -> None:
        try:
            expected = infer(op, case.types, case.attributes)
        except (ShapeError, GraphError):
            return
        with np.errstate(all="ignore"):
            result = OPS[op].reference(*case.arrays, **case.attributes)
        assert type_of(np.asarray(result)) == expected, case

    check()
