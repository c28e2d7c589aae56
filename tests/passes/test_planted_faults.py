"""A mistake in a pass: the test that compares before and after, or the verifier, must see it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from samgraph.errors import GraphError
from samgraph.graph import Graph, Literal, Node, Value
from samgraph.passes import optimise
from samgraph.passes.rewriter import Rewriter
from tests.graph.random_graphs import graphs
from tests.graph.random_images import image_graphs
from tests.passes.every_pass import EVERY_PASS
from tests.passes.test_meaning import change, weights_of
from tests.tolerances import ALGEBRAIC_PASS


def _spoiling(step: str, op: str, spoil: Callable[[Rewriter, Node], Value | None]) -> Any:
    """The real pass, whose new nodes of kind `op` are then changed by `spoil`."""

    def faulty(graph: Graph) -> Graph:
        after = EVERY_PASS[step](graph)
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

    faulty.step = step  # type: ignore[attr-defined]  # for graphs that the pass has something to do in
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


def _forget_product_with_bias(_: Rewriter, node: Node) -> Value | None:
    return node.inputs[0] if node.result.type.rank == 1 else None


def _pad_the_other_side(rewriter: Rewriter, node: Node) -> Value | None:
    before, after = node.attributes["before"], node.attributes["after"]
    return _emit(rewriter, node, *node.inputs, before=after, after=before)


def _pad_all_before(rewriter: Rewriter, node: Node) -> Value | None:
    """Both counts of each axis come before."""
    before, after = node.integers("before"), node.integers("after")
    both = tuple(a + b for a, b in zip(before, after, strict=True))
    return _emit(rewriter, node, *node.inputs, before=both, after=(0,) * len(both))


def _no_identity(rewriter: Rewriter, node: Node) -> Value | None:
    literal = node.attributes["value"]
    return (
        rewriter.emit("constant", value=Literal(literal.array * 0))
        if isinstance(literal, Literal)
        else None
    )


def _the_other_way_round(rewriter: Rewriter, node: Node) -> Value | None:
    return _emit(rewriter, node, *node.inputs[::-1])


def _forget_the_last(rewriter: Rewriter, node: Node) -> Value | None:
    """One operand of a sum or product is left out, where the other one has its shape."""
    first = rewriter.new(node.inputs[0])
    return first if first.type == node.result.type else None


def _in_another_order(rewriter: Rewriter, node: Node) -> Value | None:
    """Axes of equal length exchanged."""
    axes, shape = node.attributes["axes"], node.result.type.shape
    if not isinstance(axes, tuple):
        return None
    for i in range(1, len(axes) - 1):
        if shape[i] == shape[i + 1] != 1:
            other = (*axes[:i], axes[i + 1], axes[i], *axes[i + 2 :])
            return _emit(rewriter, node, *node.inputs, axes=other)
    return None


def _another_scale(rewriter: Rewriter, node: Node) -> Value | None:
    literal = node.attributes["value"]
    if not isinstance(literal, Literal) or literal.array.ndim:
        return None
    return rewriter.emit("constant", value=Literal(literal.array * 1.5))


def _over_other_keys(rewriter: Rewriter, node: Node) -> Value | None:
    return _emit(rewriter, node, *node.inputs, axis=-2)


def _first_row_for_all(rewriter: Rewriter, node: Node) -> Value | None:
    """Rows of queries side by side come back in another order."""
    shape = node.result.type.shape
    if len(shape) != 3 or shape[0] == 1 or not all(isinstance(n, int) for n in shape):
        return None
    swapped = rewriter.emit(
        "reshape", rewriter.new(node.inputs[0]), shape=(shape[1], shape[0], shape[2])
    )
    return rewriter.emit("transpose", swapped, axes=(1, 0, 2))


class _SeenError(Exception):
    """A fault changed what a graph means: the other graphs need not be run."""


def _first_input(_: Rewriter, node: Node) -> Value | None:
    """Nothing is done: what is read first goes on."""
    return node.inputs[0] if node.inputs[0].type == node.result.type else None


def _second_input(_: Rewriter, node: Node) -> Value | None:
    return node.inputs[1] if node.inputs[1].type == node.result.type else None


def _rows_for_columns(rewriter: Rewriter, node: Node) -> Value | None:
    """Height and width exchanged: of a square image the type does not show it."""
    return _emit(rewriter, node, *node.inputs, axes=(0, 3, 2, 1))


def _large_eps(rewriter: Rewriter, node: Node) -> Value | None:
    return _emit(rewriter, node, *node.inputs, eps=1.0)


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
        rewriter.replace(node.result, rewriter.emit("transpose", before.inputs[0], axes=order))
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
    "bias of a projected term forgotten": (
        _spoiling("project_sums", "linear", _forget_bias),
        ALGEBRAIC_PASS,
    ),
    "bias of a projected term not projected": (
        _spoiling("project_sums", "linear", _bias_as_it_was),
        ALGEBRAIC_PASS,
    ),
    "bias not scaled": (
        _spoiling("absorb_scale", "mul", _forget_product_with_bias),
        ALGEBRAIC_PASS,
    ),
    "shift of a batch norm forgotten": (
        _spoiling("fold_batch_norm", "conv2d", _forget_bias),
        ALGEBRAIC_PASS,
    ),
    "bias before a batch norm not scaled": (
        _spoiling("fold_batch_norm", "mul", _forget_product_with_bias),
        ALGEBRAIC_PASS,
    ),
    "small kernel not in the middle": (
        _spoiling("merge_depthwise", "pad", _pad_all_before),
        ALGEBRAIC_PASS,
    ),
    "identity forgotten": (
        _spoiling("merge_depthwise", "constant", _no_identity),
        ALGEBRAIC_PASS,
    ),
    "bias of cells forgotten": (
        _spoiling("pixels_to_channels", "conv2d", _forget_bias),
        ALGEBRAIC_PASS,
    ),
    "cells padded on the other side": (
        _spoiling("pixels_to_channels", "pad", _pad_the_other_side),
        ALGEBRAIC_PASS,
    ),
    "edges exchanged": (
        _spoiling("pixels_to_channels", "concat", _the_other_way_round),
        ALGEBRAIC_PASS,
    ),
    "bias of absorbed values forgotten": (
        _spoiling("absorb_key_projection", "add", _forget_the_last),
        ALGEBRAIC_PASS,
    ),
    "scale of absorbed keys": (
        _spoiling("absorb_key_projection", "constant", _another_scale),
        ALGEBRAIC_PASS,
    ),
    "softmax over the heads of absorbed keys": (
        _spoiling("absorb_key_projection", "softmax", _over_other_keys),
        ALGEBRAIC_PASS,
    ),
    "bias of absorbed queries forgotten": (
        _spoiling("absorb_query_projection", "add", _forget_the_last),
        ALGEBRAIC_PASS,
    ),
    "every head with the whole bias": (
        _spoiling("absorb_query_projection", "constant", _another_scale),
        ALGEBRAIC_PASS,
    ),
    "keys of all heads in one column": (
        _spoiling("absorb_query_projection", "mul", _forget_the_last),
        ALGEBRAIC_PASS,
    ),
    "cells in columns": (
        _spoiling("conv_transpose_to_linear", "transpose", _in_another_order),
        ALGEBRAIC_PASS,
    ),
    "bias of some pixels of a cell forgotten": (
        _spoiling("conv_transpose_to_linear", "linear", _forget_bias),
        ALGEBRAIC_PASS,
    ),
    "queries side by side come back mixed": (
        _spoiling("sink_expand", "reshape", _first_row_for_all),
        ALGEBRAIC_PASS,
    ),
    "a shared value left out": (
        _spoiling("sink_expand", "add", _forget_the_last),
        ALGEBRAIC_PASS,
    ),
    "a tiled image left out": (
        _spoiling("tile_sums", "add", lambda rewriter, node: rewriter.new(node.inputs[1])),
        0.0,
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
    "projections cut at the wrong position": (
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
    "swapped channels of a rotation forgotten": (
        _spoiling("decompose_axial_rope", "gather", _first_input),
        ALGEBRAIC_PASS,
    ),
    "scale of attention over a memory forgotten": (
        _spoiling("absorb_key_rotation", "rope_key_attention", _forget_scale),
        ALGEBRAIC_PASS,
    ),
    "scale of large attention forgotten": (
        _spoiling("attention_to_flash", "flash_attention", _forget_scale),
        0.0,
    ),
    "another eps": (
        _spoiling("decompose_layer_norm_2d", "layer_norm", _large_eps),
        ALGEBRAIC_PASS,
    ),
    "edges of a resize exchanged": (
        _spoiling("resize_to_matmul", "concat", _the_other_way_round),
        ALGEBRAIC_PASS,
    ),
    "shift of a norm not absorbed": (
        _spoiling("absorb_norm_weights", "add", _first_input),
        ALGEBRAIC_PASS,
    ),
    "scale of a norm not absorbed": (
        _spoiling("absorb_norm_weights", "mul", _first_input),
        ALGEBRAIC_PASS,
    ),
    "mean not taken off": (
        _spoiling("convolve_narrow_norms", "matmul", _second_input),
        ALGEBRAIC_PASS,
    ),
    "eps not added": (
        _spoiling("convolve_narrow_norms", "add", _first_input),
        ALGEBRAIC_PASS,
    ),
    "bias of a pointwise convolution forgotten": (
        _spoiling("linear_to_pointwise", "conv2d", _forget_bias),
        ALGEBRAIC_PASS,
    ),
    "a sum of tokens forgotten": (
        _spoiling("maps_to_tokens", "add", _first_input),
        ALGEBRAIC_PASS,
    ),
    "rows for columns": (
        _spoiling("expose_channels_last", "transpose", _rows_for_columns),
        0.0,
    ),
    "transpositions in the wrong order": (compose_the_other_way, 0.0),
}

OF_IMAGES = {
    "swapped channels of a rotation forgotten",
    "another eps",
    "edges of a resize exchanged",
    "shift of a norm not absorbed",
    "scale of a norm not absorbed",
    "mean not taken off",
    "eps not added",
    "bias of a pointwise convolution forgotten",
    "mask forgotten",
    "a sum of tokens forgotten",
    "rows for columns",
}


@pytest.mark.parametrize("name", sorted(IN_PASSES))
def test_a_fault_in_a_pass_is_seen(name: str) -> None:
    faulty, limit = IN_PASSES[name]

    usual = graphs(dtype="f64", least=4, step=getattr(faulty, "step", ""))
    images = image_graphs() if name in OF_IMAGES else usual
    most = 150 if name in OF_IMAGES else 300

    @settings(max_examples=most, phases=[Phase.generate], report_multiple_bugs=False)
    @given(images)
    def check(graph: Graph) -> None:
        try:
            after = optimise(graph, [faulty])
        except GraphError as error:  # the verifier saw it
            raise _SeenError from error
        if change(graph, after, weights_of(graph)) > limit:
            raise _SeenError

    with pytest.raises(_SeenError):
        check()
