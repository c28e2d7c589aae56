"""Mistakes made on purpose, in references, lowering rules and passes: the tests must see each.

A fault is put in the place of the real thing, and the comparison that the real tests use, over
the same random cases, must report it. With no fault it must report nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from openvino import opset15

from samgraph.engines.openvino.lowering import LOWER
from samgraph.graph import Graph, Literal, Node, Value
from samgraph.graph.types import Array
from samgraph.ops import OPS
from samgraph.ops.axial_rope import rotation_tables
from samgraph.ops.resize import weights as resize_weights
from samgraph.passes import PASSES
from samgraph.passes.rewriter import Rewriter
from tests.graph.random_graphs import graphs
from tests.ops.agreement import disagreement, run_on
from tests.ops.cases import Case, batches
from tests.passes.test_meaning import change, weights_of
from tests.tolerances import ALGEBRAIC_PASS

TRUE = {name: op.reference for name, op in OPS.items()}
Reference = Callable[..., Array]


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


# ------------------------------------------------------------------ faults in references


def layer_norm_with_another_eps(x: Array, *rest: Array, eps: float) -> Array:
    return TRUE["layer_norm"](x, *rest, eps=eps * 10)


def layer_norm_unbiased(x: Array, scale: Array, shift: Array, *, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    y: Array = centred / np.sqrt(x.var(-1, keepdims=True, ddof=1) + eps) * scale + shift
    return y


def layer_norm_eps_outside(x: Array, scale: Array, shift: Array, *, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    y: Array = centred / (np.sqrt(x.var(-1, keepdims=True)) + eps) * scale + shift
    return y


def layer_norm_2d_over_columns(x: Array, *rest: Array, eps: float) -> Array:
    square = x.shape[1] == x.shape[3]
    return (
        TRUE["layer_norm"](x, *rest, eps=eps)
        if square
        else TRUE["layer_norm_2d"](x[:, ::-1], *rest, eps=eps)
    )


def gelu_by_tanh(x: Array) -> Array:
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    y: Array = 0.5 * x * (1 + np.tanh(inner))
    return y.astype(x.dtype)


def softmax_over_the_first_axis(x: Array, *, axis: int) -> Array:
    return TRUE["softmax"](x, axis=0)


def attention_unscaled(*arrays: Array, heads: int, scale: float) -> Array:
    return TRUE["attention"](*arrays, heads=heads, scale=1.0)


def attention_without_mask(*arrays: Array, heads: int, scale: float) -> Array:
    return TRUE["attention"](*arrays[:3], heads=heads, scale=scale)


def attention_with_interleaved_heads(
    q: Array, k: Array, v: Array, *mask: Array, heads: int, scale: float
) -> Array:
    def shuffle(x: Array) -> Array:
        apart = x.reshape(*x.shape[:-1], x.shape[-1] // heads, heads)
        return apart.swapaxes(-1, -2).reshape(x.shape)

    return TRUE["attention"](shuffle(q), shuffle(k), shuffle(v), *mask, heads=heads, scale=scale)


def attention_with_keys_as_values(
    q: Array, k: Array, v: Array, *mask: Array, heads: int, scale: float
) -> Array:
    other = k if k.shape == v.shape else v[..., ::-1, :]
    return TRUE["attention"](q, k, np.ascontiguousarray(other), *mask, heads=heads, scale=scale)


def _rope(x: Array, cos: Array, sin: Array, heads: int, turned: int) -> Array:
    size = x.shape[-1] // heads // 2
    pairs = x[..., :turned, :].reshape(*x.shape[:-2], turned, heads, size, 2)
    a, b = pairs[..., 0], pairs[..., 1]
    c, s = cos[:, None, :].astype(x.dtype), sin[:, None, :].astype(x.dtype)
    y = np.stack([a * c - b * s, a * s + b * c], -1).reshape(*x.shape[:-2], turned, x.shape[-1])
    return np.concatenate([y, x[..., turned:, :]], -2)


def rope_interleaved(x: Array, *, grid: Any, theta: float, heads: int, unturned: int) -> Array:
    """Every place once for each frame, then the next: not frame after frame."""
    turned = x.shape[-2] - unturned
    if not turned:
        return x
    tables = rotation_tables(grid, x.shape[-1] // heads, theta)
    cos, sin = (np.repeat(table, turned // len(table), 0) for table in tables)
    return _rope(x, cos, sin, heads, turned)


def rope_with_rows_first(x: Array, *, grid: Any, theta: float, heads: int, unturned: int) -> Array:
    turned = x.shape[-2] - unturned
    if not turned:
        return x
    tables = _rows_first(grid, x.shape[-1] // heads, theta)
    cos, sin = (np.tile(table, (turned // len(table), 1)) for table in tables)
    return _rope(x, cos, sin, heads, turned)


def rope_turning_the_last(x: Array, *, grid: Any, theta: float, heads: int, unturned: int) -> Array:
    """The first tokens are left alone, not the last."""
    turned = TRUE["axial_rope"](
        np.roll(x, -unturned, -2), grid=grid, theta=theta, heads=heads, unturned=unturned
    )
    return np.roll(turned, unturned, -2)


def rope_of_halves(x: Array, *, grid: Any, theta: float, heads: int, unturned: int) -> Array:
    """Channel i goes with channel i + D/2, not with its neighbour."""

    def apart(x: Array, back: bool) -> Array:
        size = x.shape[-1] // heads // 2
        split = (heads, size, 2) if back else (heads, 2, size)
        return x.reshape(*x.shape[:-1], *split).swapaxes(-1, -2).reshape(x.shape)

    y = TRUE["axial_rope"](apart(x, False), grid=grid, theta=theta, heads=heads, unturned=unturned)
    return apart(y, True)


def rope_with_another_theta(x: Array, *, theta: float, **rest: Any) -> Array:
    return TRUE["axial_rope"](x, theta=theta * 2, **rest)


def linear_transposed(x: Array, weight: Array, *bias: Array, activation: str = "none") -> Array:
    turned = weight.T if weight.shape[0] == weight.shape[1] else weight[::-1]
    return TRUE["linear"](x, turned, *bias, activation=activation)


def linear_without_activation(*arrays: Array, activation: str = "none") -> Array:
    return TRUE["linear"](*arrays)


def linear_without_bias(x: Array, weight: Array, *bias: Array, activation: str = "none") -> Array:
    return TRUE["linear"](x, weight, activation=activation)


def conv_padded_on_one_side(x: Array, *rest: Array, padding: Any, **attributes: Any) -> Array:
    wide = np.pad(x, ((0, 0), (0, 0), (2 * padding[0], 0), (2 * padding[1], 0)))
    return TRUE["conv2d"](wide, *rest, padding=(0, 0), **attributes)


def conv_padded_with_the_edge(x: Array, *rest: Array, padding: Any, **attributes: Any) -> Array:
    sides = ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2)
    return TRUE["conv2d"](np.pad(x, sides, "edge"), *rest, padding=(0, 0), **attributes)


def conv_with_groups_in_turn(x: Array, *rest: Array, groups: int, **attributes: Any) -> Array:
    """Channel c belongs to group c % groups."""
    mixed = x.reshape(x.shape[0], -1, groups, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)
    return TRUE["conv2d"](mixed, *rest, groups=groups, **attributes)


def conv_flipped(x: Array, weight: Array, *bias: Array, **attributes: Any) -> Array:
    return TRUE["conv2d"](x, weight[:, :, ::-1, ::-1], *bias, **attributes)


def conv_transpose_flipped(x: Array, weight: Array, *bias: Array, stride: Any) -> Array:
    return TRUE["conv_transpose2d"](x, weight[:, :, ::-1, ::-1], *bias, stride=stride)


def resize_half_a_pixel_off(x: Array, *, size: Any, how: str, antialias: bool) -> Array:
    places = [np.arange(n) * (m / n) for n, m in zip(size, x.shape[2:], strict=True)]
    rows, columns = (
        np.maximum(0, 1 - np.abs(np.arange(m)[None] - np.minimum(p, m - 1)[:, None]))
        for p, m in zip(places, x.shape[2:], strict=True)
    )
    y: Array = rows @ x @ columns.T
    return y.astype(x.dtype)


def resize_nearest_for_all(x: Array, *, size: Any, how: str, antialias: bool) -> Array:
    return TRUE["resize"](x, size=size, how="nearest", antialias=False)


def resize_without_antialias(x: Array, *, size: Any, how: str, antialias: bool) -> Array:
    return TRUE["resize"](x, size=size, how=how, antialias=False)


def resize_rounding_nearest(x: Array, *, size: Any, how: str, antialias: bool) -> Array:
    if how != "nearest":
        return TRUE["resize"](x, size=size, how=how, antialias=antialias)
    rows, columns = (
        np.minimum(np.round(np.arange(n) * m / n).astype(int), m - 1)
        for n, m in zip(size, x.shape[2:], strict=True)
    )
    return x[:, :, rows][..., columns]


def argmax_of_the_last(x: Array, *, axes: Any, how: str, keep: bool) -> Array:
    if how != "argmax" or len(axes) != 1:
        return TRUE["reduce"](x, axes=axes, how=how, keep=keep)
    axis = axes[0]
    last = x.shape[axis] - 1 - np.flip(x, axis).argmax(axis, keepdims=keep)
    return np.asarray(last, np.int64)


def argmax_in_the_order_of_the_tensor(x: Array, *, axes: Any, how: str, keep: bool) -> Array:
    order = tuple(sorted(axis % x.ndim for axis in axes))
    return TRUE["reduce"](x, axes=order, how=how, keep=keep)


def concat_reversed(*arrays: Array, axis: int) -> Array:
    return TRUE["concat"](*arrays[::-1], axis=axis)


def gather_clamped(x: Array, index: Array, *, axis: int, batch: int) -> Array:
    inside = np.clip(index, -x.shape[axis], x.shape[axis] - 1)
    return TRUE["gather"](x, inside, axis=axis, batch=batch)


def gather_without_negative(x: Array, index: Array, *, axis: int, batch: int) -> Array:
    return TRUE["gather"](x, np.maximum(index, 0), axis=axis, batch=batch)


def pad_with_zero(x: Array, *, before: Any, after: Any, value: float) -> Array:
    return TRUE["pad"](x, before=before, after=after, value=0.0)


def tile_each_element(x: Array, *, counts: Any) -> Array:
    for axis, count in enumerate(counts):
        x = np.repeat(x, count, axis)
    return x


def transpose_by_reshape(x: Array, *, axes: Any) -> Array:
    return x.reshape([x.shape[axis] for axis in axes])


def where_swapped(condition: Array, a: Array, b: Array) -> Array:
    return TRUE["where"](condition, b, a)


def compare_or_equal(a: Array, b: Array, *, how: str) -> Array:
    return TRUE["compare"](a, b, how={"lt": "le", "gt": "ge"}.get(how, how))


def cast_rounding(x: Array, *, dtype: Any) -> Array:
    return TRUE["cast"](np.round(x) if dtype[0] in "iu" else x, dtype=dtype)


def max_pool_from_the_end(x: Array, *, kernel: Any, stride: Any) -> Array:
    y = TRUE["max_pool2d"](x[:, :, ::-1], kernel=kernel, stride=stride)
    return np.ascontiguousarray(y[:, :, ::-1])


def sigmoid_of_twice(x: Array) -> Array:
    return TRUE["sigmoid"](x * np.float32(1.01))


IN_REFERENCES: list[tuple[str, Reference]] = [
    ("layer_norm", layer_norm_with_another_eps),
    ("layer_norm", layer_norm_unbiased),
    ("layer_norm", layer_norm_eps_outside),
    ("layer_norm_2d", layer_norm_2d_over_columns),
    ("gelu", gelu_by_tanh),
    ("softmax", softmax_over_the_first_axis),
    ("attention", attention_unscaled),
    ("attention", attention_without_mask),
    ("attention", attention_with_interleaved_heads),
    ("attention", attention_with_keys_as_values),
    ("axial_rope", rope_interleaved),
    ("axial_rope", rope_with_rows_first),
    ("axial_rope", rope_turning_the_last),
    ("axial_rope", rope_of_halves),
    ("axial_rope", rope_with_another_theta),
    ("linear", linear_transposed),
    ("linear", linear_without_activation),
    ("linear", linear_without_bias),
    ("conv2d", conv_padded_on_one_side),
    ("conv2d", conv_padded_with_the_edge),
    ("conv2d", conv_with_groups_in_turn),
    ("conv2d", conv_flipped),
    ("conv_transpose2d", conv_transpose_flipped),
    ("resize", resize_half_a_pixel_off),
    ("resize", resize_nearest_for_all),
    ("resize", resize_without_antialias),
    ("resize", resize_rounding_nearest),
    ("reduce", argmax_of_the_last),
    ("reduce", argmax_in_the_order_of_the_tensor),
    ("concat", concat_reversed),
    ("gather", gather_clamped),
    ("gather", gather_without_negative),
    ("pad", pad_with_zero),
    ("tile", tile_each_element),
    ("transpose", transpose_by_reshape),
    ("where", where_swapped),
    ("compare", compare_or_equal),
    ("cast", cast_rounding),
    ("max_pool2d", max_pool_from_the_end),
    ("sigmoid", sigmoid_of_twice),
]


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


# ------------------------------------------------------------------ faults in lowering rules

Rule = Callable[..., Any]
RULE = dict(LOWER)


def _mvn(eps_mode: str, variance: bool = True) -> Rule:
    def rule(_: Any, node: Node, inputs: Sequence[Any]) -> Any:
        x, scale, shift = inputs
        axes = opset15.constant(np.array([-1]))
        normal = opset15.mvn(x, axes, variance, node.attributes["eps"], eps_mode)
        return opset15.add(opset15.multiply(normal, scale), shift)

    return rule


def _with(op: str, **changed: Any) -> Rule:
    """The real rule, with some attributes of the node replaced."""

    def rule(symbols: Any, node: Node, inputs: Sequence[Any]) -> Any:
        attributes = {**node.attributes, **changed}
        return RULE[op](symbols, replace(node, attributes=attributes), inputs)

    return rule


def _swapped(op: str) -> Rule:
    return lambda symbols, node, inputs: RULE[op](symbols, node, inputs[::-1])


def _dropping(op: str, keep: int) -> Rule:
    """The real rule without the inputs behind the first `keep`: no bias, no mask."""

    def rule(symbols: Any, node: Node, inputs: Sequence[Any]) -> Any:
        return RULE[op](symbols, replace(node, inputs=node.inputs[:keep]), inputs[:keep])

    return rule


def _padded_before_only(symbols: Any, node: Node, inputs: Sequence[Any]) -> Any:
    padding: Any = node.attributes["padding"]
    before = np.array([0, 0, 2 * padding[0], 2 * padding[1]])
    padded = opset15.pad(
        inputs[0], opset15.constant(before), opset15.constant(before * 0), "constant",
        opset15.constant(np.float32(0)),
    )  # fmt: skip
    bare = replace(node, attributes={**node.attributes, "padding": (0, 0)})
    return RULE["conv2d"](symbols, bare, [padded, *inputs[1:]])


def _sums_for_means(symbols: Any, node: Node, inputs: Sequence[Any]) -> Any:
    how = "sum" if node.attributes["how"] == "mean" else node.attributes["how"]
    return _with("reduce", how=how)(symbols, node, inputs)


IN_LOWERING: dict[str, tuple[str, Rule]] = {
    "eps outside the root": ("layer_norm", _mvn("outside_sqrt")),
    "no variance": ("layer_norm", _mvn("inside_sqrt", variance=False)),
    "tanh gelu": ("gelu", lambda _, __, inputs: opset15.gelu(inputs[0], "tanh")),
    "unscaled attention": ("attention", _with("attention", scale=1.0)),
    "attention without mask": ("attention", _dropping("attention", 3)),
    "padding before only": ("conv2d", _padded_before_only),
    "convolution without bias": ("conv2d", _dropping("conv2d", 2)),
    "difference the other way": ("sub", _swapped("sub")),
    "quotient the other way": ("div", _swapped("div")),
    "softmax along the first axis": ("softmax", _with("softmax", axis=0)),
    "maximum for minimum": ("minimum", RULE["maximum"]),
    "cosine for sine": ("sin", RULE["cos"]),
    "less or equal for less": ("compare", _with("compare", how="le")),
    "clipped below only": ("clip", _with("clip", high=1e30)),
    "sums for means": ("reduce", _sums_for_means),
}


@pytest.mark.parametrize("name", sorted(IN_LOWERING))
def test_a_fault_in_a_lowering_rule_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, fault = IN_LOWERING[name]
    expected = run_on("reference", uses(op))
    monkeypatch.setitem(LOWER, op, fault)

    assert seen(run_on("openvino", uses(op)), expected) > 0


def _rows_first(grid: tuple[int, int], width: int, theta: float) -> tuple[Array, Array]:
    cos, sin = rotation_tables(grid, width, theta)
    return np.roll(cos, width // 4, 1), np.roll(sin, width // 4, 1)


def _shifted_weights(length: int, size: int, how: str, antialias: bool) -> Array:
    return np.roll(resize_weights(length, size, how, antialias), 1, axis=1)


@pytest.mark.parametrize(
    ("op", "name", "fault"),
    [
        ("axial_rope", "rotation_tables", _rows_first),
        ("resize", "resize_weights", _shifted_weights),
    ],
)
def test_a_fault_in_a_decomposition_is_seen(
    op: str, name: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_on("reference", uses(op))
    monkeypatch.setattr(f"samgraph.engines.decompositions.{name}", fault)

    assert seen(run_on("openvino", uses(op)), expected) > 0


# ------------------------------------------------------------------ faults in passes


def _spoiling(step: str, op: str, spoil: Callable[[Rewriter, Node], Value | None]) -> Any:
    """The real pass, whose new nodes of kind `op` are then changed by `spoil`."""

    def faulty(graph: Graph) -> Graph:
        after = PASSES[step](graph)
        old = {node.key for node in graph}
        rewriter = Rewriter(after)
        for node in after:
            new = node.op == op and node.key not in old
            changed = spoil(rewriter, node) if new else None
            if changed is None:
                rewriter.keep(node)
            else:
                rewriter.replace(node.result, changed)
        return rewriter.finish()

    return faulty


def _emit(rewriter: Rewriter, node: Node, *inputs: Value, **changed: Any) -> Value:
    new = [rewriter.new(value) for value in inputs]
    return rewriter.emit(node.op, *new, exact=node.exact, **{**node.attributes, **changed})


def _forget_bias(rewriter: Rewriter, node: Node) -> Value | None:
    return _emit(rewriter, node, *node.inputs[:2]) if len(node.inputs) > 2 else None


def _forget_mask(rewriter: Rewriter, node: Node) -> Value | None:
    return _emit(rewriter, node, *node.inputs[:3]) if len(node.inputs) > 3 else None


def _forget_scale(rewriter: Rewriter, node: Node) -> Value | None:
    return _emit(rewriter, node, *node.inputs, scale=1.0)


def _bias_as_it_was(_: Rewriter, node: Node) -> Value | None:
    """The bias of the value goes behind the output map without passing through it."""
    return node.inputs[0] if node.inputs[0].type == node.result.type else None


def _another_activation(rewriter: Rewriter, node: Node) -> Value | None:
    return _emit(rewriter, node, *node.inputs, activation="relu")


def _first_columns(rewriter: Rewriter, node: Node) -> Value | None:
    starts, ends = node.attributes["starts"], node.attributes["ends"]
    if not (isinstance(starts, tuple) and isinstance(ends, tuple)) or starts[-1] == 0:
        return None
    width = ends[-1] - starts[-1]  # type: ignore[operator]  # both are ints here
    return _emit(rewriter, node, *node.inputs, starts=(*starts[:-1], 0), ends=(*ends[:-1], width))


def _round_constant(rewriter: Rewriter, node: Node) -> Value | None:
    literal = node.attributes["value"]
    if not isinstance(literal, Literal) or literal.array.dtype != np.float64:
        return None
    coarse = literal.array.astype(np.float32).astype(np.float64)
    return rewriter.emit("constant", value=Literal(coarse))


def _one_head(rewriter: Rewriter, node: Node) -> Value | None:
    return _emit(rewriter, node, *node.inputs, heads=1) if node.attributes["heads"] != 1 else None


def merge_without_looking(graph: Graph) -> Graph:
    """Duplicates are found by op and inputs; attributes are forgotten."""
    rewriter = Rewriter(graph)
    known: dict[tuple[object, ...], Value] = {}
    for node in graph:
        result = rewriter.keep(node)
        made = rewriter.maker(result)
        key = (node.op, made.inputs if made else (), node.result.type)
        rewriter.replace(node.result, known.setdefault(key, result))
    return rewriter.finish()


def compose_the_other_way(graph: Graph) -> Graph:
    """Two transpositions become one, with the orders exchanged."""
    rewriter = Rewriter(graph)
    for node in graph:
        rewriter.keep(node)
        before = rewriter.maker(rewriter.new(node.inputs[0])) if node.inputs else None
        if before is None or not before.op == node.op == "transpose":
            continue
        first, second = before.attributes["axes"], node.attributes["axes"]
        order = tuple(second[axis] for axis in first)  # type: ignore[union-attr,index]  # tuples
        joined = rewriter.emit("transpose", before.inputs[0], axes=order)
        if joined.type == node.result.type:
            rewriter.replace(node.result, joined)
    return rewriter.finish()


# name -> pass, and the difference that the real test allows
IN_PASSES: dict[str, tuple[Callable[[Graph], Graph], float]] = {
    "absorbed bias forgotten": (
        _spoiling("absorb_value_projection", "linear", _forget_bias),
        ALGEBRAIC_PASS,
    ),
    "absorbed bias not projected": (
        _spoiling("absorb_value_projection", "linear", _bias_as_it_was),
        ALGEBRAIC_PASS,
    ),
    "fused attention without mask": (
        _spoiling("fuse_attention", "attention", _forget_mask),
        ALGEBRAIC_PASS,
    ),
    "fused attention without scale": (
        _spoiling("fuse_attention", "attention", _forget_scale),
        ALGEBRAIC_PASS,
    ),
    "fused attention with one head": (
        _spoiling("fuse_attention", "attention", _one_head),
        ALGEBRAIC_PASS,
    ),
    "projections cut at the wrong place": (
        _spoiling("merge_projections", "slice", _first_columns),
        ALGEBRAIC_PASS,
    ),
    "another activation": (
        _spoiling("fuse_linear_activation", "linear", _another_activation),
        0.0,
    ),
    "constants folded in float32": (
        _spoiling("fold_constants", "constant", _round_constant),
        0.0,
    ),
    "duplicates that differ": (merge_without_looking, 0.0),
    "transpositions in the wrong order": (compose_the_other_way, 0.0),
}


@pytest.mark.parametrize("name", sorted(IN_PASSES))
def test_a_fault_in_a_pass_is_seen(name: str) -> None:
    faulty, limit = IN_PASSES[name]
    worst = [0.0]

    @settings(max_examples=80, phases=[Phase.generate])
    @given(graphs(dtype="f64", least=4))
    def check(graph: Graph) -> None:
        worst.append(change(graph, faulty(graph), weights_of(graph)))

    check()
    assert max(worst) > limit


def test_there_are_many_faults() -> None:
    assert len(IN_REFERENCES) + len(IN_LOWERING) + len(IN_PASSES) + 2 >= 60
