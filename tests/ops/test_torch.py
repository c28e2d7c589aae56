"""The numpy references against torch, for every op that torch has. Skipped without torch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from samgraph.graph.types import Array
from samgraph.ops import OPS
from tests.ops.cases import Case, cases
from tests.tolerances import OP_FP32

pytestmark = pytest.mark.parity

# `axial_rope` is compared with the reference model itself, in tests/models/sam2.
NOT_IN_TORCH = {"constant", "axial_rope"}

Rule = Callable[..., Any]


def _rules() -> dict[str, Rule]:
    """How torch says each op."""
    import torch
    from torch.nn import functional as nn

    activations = {"none": lambda y: y, "relu": nn.relu, "gelu": nn.gelu, "sigmoid": torch.sigmoid}
    dtypes = {
        "f32": torch.float32, "f16": torch.float16, "i64": torch.int64, "i32": torch.int32,
        "u8": torch.uint8, "bool": torch.bool,
    }  # fmt: skip

    def layer_norm_2d(x: Any, scale: Any, shift: Any, *, eps: float) -> Any:
        last = nn.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],), scale, shift, eps)
        return last.permute(0, 3, 1, 2)

    def attention(q: Any, k: Any, v: Any, mask: Any = None, *, heads: int, scale: float) -> Any:
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(-2, -3) for x in (q, k, v))
        if mask is not None:
            mask = mask.expand(*q.shape[:-1], k.shape[-2])
        y = nn.scaled_dot_product_attention(q, k, v, mask, scale=scale)
        return y.transpose(-2, -3).flatten(-2)

    def reduce(x: Any, *, axes: tuple[int, ...], how: str, keep: bool) -> Any:
        if how == "argmax":
            reduced = [axis % x.ndim for axis in axes]
            left = [axis for axis in range(x.ndim) if axis not in reduced]
            y = x.permute(*left, *reduced).reshape(*(x.shape[i] for i in left), -1).argmax(-1)
            return (
                y.reshape([1 if i in reduced else n for i, n in enumerate(x.shape)]) if keep else y
            )
        if not axes:
            return x
        return getattr(torch, {"max": "amax", "min": "amin"}.get(how, how))(x, axes, keepdim=keep)

    def gather(x: Any, index: Any, *, axis: int, batch: int) -> Any:
        axis %= x.ndim
        if batch:
            rows = [
                gather(a, i, axis=axis - 1, batch=batch - 1) for a, i in zip(x, index, strict=True)
            ]
            return torch.stack(rows)
        length = x.shape[axis]
        indices = torch.where(index < 0, index + length, index)
        inside = (indices >= 0) & (indices < length)
        y = x.index_select(axis, torch.where(inside, indices, 0).reshape(-1))
        y = y.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))
        shown = inside.reshape([1] * axis + list(index.shape) + [1] * (x.ndim - axis - 1))
        return torch.where(shown, y, 0)

    def pad(x: Any, *, before: Any, after: Any, value: float) -> Any:
        pairs = [n for b, a in zip(before[::-1], after[::-1], strict=True) for n in (b, a)]
        return nn.pad(x, pairs, value=value)

    def resize(x: Any, *, size: Any, how: str, antialias: bool) -> Any:
        return nn.interpolate(x, size=size, mode=how, antialias=antialias)

    def cut(x: Any, *, starts: Any, ends: Any, steps: Any) -> Any:
        return x[tuple(slice(*bounds) for bounds in zip(starts, ends, steps, strict=True))]

    return {
        "add": torch.add,
        "attention": attention,
        "cast": lambda x, *, dtype: x.to(dtypes[dtype]),
        "clip": lambda x, *, low, high: torch.clamp(x, low, high),
        "compare": lambda a, b, *, how: getattr(torch, how)(a, b),
        "concat": lambda *xs, axis: torch.cat(xs, axis),
        "conv2d": nn.conv2d,
        "conv_transpose2d": nn.conv_transpose2d,
        "cos": torch.cos,
        "div": torch.div,
        "exp": torch.exp,
        "expand": lambda x, *, shape: x.expand(shape),
        "gather": gather,
        "gelu": nn.gelu,
        "layer_norm": lambda x, w, b, *, eps: nn.layer_norm(x, (x.shape[-1],), w, b, eps),
        "layer_norm_2d": layer_norm_2d,
        "linear": lambda x, w, b=None, *, activation="none": activations[activation](
            nn.linear(x, w, b)
        ),
        "log": torch.log,
        "matmul": torch.matmul,
        "max_pool2d": lambda x, *, kernel, stride: nn.max_pool2d(x, kernel, stride),
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "mul": torch.mul,
        "pad": pad,
        "reduce": reduce,
        "relu": nn.relu,
        "reshape": lambda x, *, shape: x.reshape(shape),
        "resize": resize,
        "sigmoid": torch.sigmoid,
        "sin": torch.sin,
        "slice": cut,
        "softmax": lambda x, *, axis: torch.softmax(x, axis),
        "sqrt": torch.sqrt,
        "sub": torch.sub,
        "tile": lambda x, *, counts: torch.tile(x, counts),
        "transpose": lambda x, *, axes: x.permute(axes),
        "where": torch.where,
    }


def test_every_op_is_compared_or_named_as_missing() -> None:
    assert set(_rules()) | NOT_IN_TORCH == set(OPS)


@pytest.mark.parametrize("op", sorted(set(OPS) - NOT_IN_TORCH))
def test_reference_agrees_with_torch(op: str) -> None:
    rule = _rules()[op]

    @settings(max_examples=100, phases=[Phase.generate])
    @given(cases(op, ("f32",)))
    def check(case: Case) -> None:
        expected = _in_torch(rule, case)
        actual = OPS[op].reference(*case.arrays, **case.attributes)
        absolute, relative = OP_FP32
        np.testing.assert_allclose(
            actual, expected, atol=absolute, rtol=relative, err_msg=str(case)
        )
        assert np.asarray(actual).shape == expected.shape

    check()


def test_nearest_takes_the_pixels_that_torch_takes_at_many_sizes() -> None:
    import torch

    wrong = []
    for length in range(1, 130, 3):
        x = np.arange(length, dtype=np.float32).reshape(1, 1, 1, length)
        for size in range(1, 200, 7):
            want = torch.nn.functional.interpolate(torch.from_numpy(x), size=(1, size)).numpy()
            got = OPS["resize"].reference(x, size=(1, size), how="nearest", antialias=False)
            if not np.array_equal(got, want):
                wrong.append((length, size))
    assert not wrong


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("matmul", [(2, 3), (4, 5)], {}),
        ("linear", [(2, 3), (4, 2)], {}),
        ("add", [(2, 3), (2, 4)], {}),
        ("concat", [(2, 3), (2, 4)], {"axis": 0}),
        (
            "conv2d",
            [(1, 3, 8, 8), (4, 2, 3, 3)],
            {"stride": (1, 1), "padding": (0, 0), "groups": 1},
        ),
        (
            "conv2d",
            [(1, 3, 2, 2), (4, 3, 3, 3)],
            {"stride": (1, 1), "padding": (0, 0), "groups": 1},
        ),
        ("conv_transpose2d", [(1, 3, 4, 4), (2, 3, 2, 2)], {"stride": (2, 2)}),
        ("reshape", [(2, 3)], {"shape": (4, 2)}),
        ("expand", [(2, 3)], {"shape": (2, 4)}),
        ("transpose", [(2, 3)], {"axes": (0, 0)}),
        ("layer_norm", [(2, 3), (2,), (2,)], {"eps": 1e-6}),
        ("max_pool2d", [(1, 1, 2, 2)], {"kernel": (3, 3), "stride": (1, 1)}),
        ("softmax", [(2,)], {"axis": 1}),
    ],
)
def test_both_raise_together(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    case = Case(op, tuple(np.ones(shape, np.float32) for shape in shapes), attributes)

    with pytest.raises((RuntimeError, IndexError)):
        _in_torch(_rules()[op], case)
    with pytest.raises(TypeError):
        OPS[op].infer(*case.types, **case.attributes)


def _in_torch(rule: Rule, case: Case) -> Array:
    import torch

    tensors = [torch.from_numpy(np.array(x)) for x in case.arrays]
    result: Array = np.asarray(rule(*tensors, **case.attributes))
    return result
