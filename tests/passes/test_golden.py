"""Each pass on graphs written for it: the printed graphs before and after are golden files."""

from collections.abc import Callable

import numpy as np
import pytest

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor, TensorType, parse_graph, print_graph
from samgraph.passes import optimise
from tests.passes import (  # noqa: F401  (they register themselves)
    convolution_cases,
    decoder_cases,
    openvino_cases,
)
from tests.passes.every_pass import EVERY_PASS
from tests.passes.golden_case import CASES, case

Golden = Callable[[str, str], None]


@case("drop_unused")
def drop_unused_nodes_and_params() -> Graph:
    builder = Builder("drop")
    x = builder.input("x", "f32[M,4]")
    builder.input("kept", "f32[3]")
    ops.linear(ops.gelu(x), builder.param("unused", "f32[8,4]"))
    return builder.finish(y=x + builder.param("used", "f32[4]"))


@case("fold_constants")
def fold_constants_into_one() -> Graph:
    builder = Builder("fold")
    x = builder.input("x", "f32[M,2]")
    scale = ops.sqrt(builder.constant(4.0, "f32")) * 3
    table = ops.reshape(builder.constant(np.arange(4), "f32"), 2, 2)
    return builder.finish(y=x * scale + table[1])


@case("fold_constants")
def fold_constants_leaves_copies_and_symbols_alone() -> Graph:
    builder = Builder("copies")
    x = builder.input("x", "f32[M,2]")
    M = x.shape[0]
    row = builder.constant(np.arange(2), "f32")
    table = builder.constant(np.arange(6).reshape(3, 2), "f32")
    return builder.finish(y=x + ops.expand(row, M, 2), z=ops.tile(row, 9), w=table[M : M + 1])


@case("merge_duplicates")
def merge_duplicates_of_a_chain() -> Graph:
    builder = Builder("twice")
    x = builder.input("x", "f32[4]")
    with builder.exact():
        exact = ops.exp(x)  # not the same: it must stay in float32
    return builder.finish(y=ops.exp(x) * 2 + ops.exp(x) * 2, z=exact, w=ops.clip(x, 0, 1))


@case("simplify_movement")
def simplify_movement_that_cancels() -> Graph:
    builder = Builder("movement")
    x = builder.input("x", "f32[2,M,6]")
    there = ops.transpose(x, 2, 0, 1)
    back = ops.transpose(there, 1, 2, 0)
    split = back.reshape(2, -1, 2, 3).reshape(2, -1, 3, 2)
    same = ops.transpose(split, 0, 1, 2, 3)
    return builder.finish(y=same, z=ops.transpose(there, 2, 1, 0))


@case("pointwise_to_linear")
def pointwise_to_linear_in_a_row() -> Graph:
    builder = Builder("pointwise")
    x = builder.input("x", "f32[B,4,4,8]")
    wide, narrow = builder.param("wide", "f32[32,8,1,1]"), builder.param("narrow", "f32[2,32,1,1]")
    y = ops.conv2d(ops.transpose(x, 0, 3, 1, 2), wide, builder.param("bias", "f32[32]"))
    other = ops.conv2d(y, builder.param("kernel", "f32[2,32,3,3]"))
    return builder.finish(y=ops.conv2d(y, narrow), z=other)


@case("absorb_scale")
def absorb_scale_on_either_side() -> Graph:
    builder = Builder("scaled")
    x = builder.input("x", "f32[M,8]")
    w, b, scale = (builder.param(*p) for p in (("w", "f32[4,8]"), ("b", "f32[4]"), ("s", "f32[4]")))
    fixed = builder.constant(np.arange(4), "f32")
    return builder.finish(y=ops.linear(x, w, b) * scale, z=fixed * ops.linear(x, w))


@case("absorb_scale")
def absorb_scale_leaves_other_scales_and_second_readers() -> Graph:
    builder = Builder("unscaled")
    x, given = builder.input("x", "f32[4,8]"), builder.input("given", "f32[4]")
    w, scale = builder.param("w", "f32[4,8]"), builder.param("scale", "f32[4]")
    twice, output = ops.linear(x, w), ops.linear(x, w)
    return builder.finish(
        not_fixed=ops.linear(x, w) * given,
        a_row_each=ops.linear(x, w) * builder.param("rows", "f32[4,1]"),
        read_twice=twice * scale + twice,
        output=output,
        scaled=output * scale,
        after_an_activation=ops.relu(ops.linear(x, w)) * scale,
    )


def _residual(builder: Builder, x: Tensor, name: str, width: int) -> Tensor:
    """x + linear(hidden), the end of a block; the hidden layer is an input."""
    hidden = builder.input(f"hidden_{name}", TensorType((*x.shape[:-1], 32)))
    weight = builder.param(f"{name}.weight", TensorType((width, 32)))
    return x + ops.linear(hidden, weight, builder.param(f"{name}.bias", TensorType((width,))))


@case("project_sums")
def project_sums_of_a_residual_block() -> Graph:
    builder = Builder("residual")
    x = builder.input("x", "f32[M,8]")
    weight, bias = builder.param("weight", "f32[2,8]"), builder.param("bias", "f32[2]")
    return builder.finish(y=ops.linear(_residual(builder, x, "block", 8), weight, bias))


@case("project_sums")
def project_sums_under_a_pointwise_convolution() -> Graph:
    builder = Builder("image")
    x, hidden = builder.input("x", "f32[N,8,4,4]"), builder.input("hidden", "f32[N,4,4,32]")
    term = ops.transpose(ops.linear(hidden, builder.param("w1", "f32[8,32]")), 0, 3, 1, 2)
    weight, bias = builder.param("w2", "f32[2,8,1,1]"), builder.param("b2", "f32[2]")
    return builder.finish(y=ops.conv2d(term + x, weight, bias))


@case("project_sums")
def project_sums_leaves_wide_maps_and_second_readers() -> Graph:
    builder = Builder("no_gain")
    x = builder.input("x", "f32[M,8]")
    narrow, same = builder.param("narrow", "f32[2,8]"), builder.param("same", "f32[8,8]")
    total, term = _residual(builder, x, "output", 8), ops.linear(x, same)
    row = ops.linear(builder.input("row", "f32[1,8]"), same)
    return builder.finish(
        does_not_narrow=ops.linear(_residual(builder, x, "wide", 8), same),
        output=total,
        projected=ops.linear(total, narrow),
        term_read_twice=ops.linear(x + term, narrow) + ops.reduce(term, (1,), how="max", keep=True),
        broadcast=ops.linear(x + row, narrow),
        after_an_activation=ops.linear(x + ops.gelu(ops.linear(x, same)), narrow),
    )


@case("project_sums")
def project_sums_leaves_other_axes_and_kernels() -> Graph:
    builder = Builder("axes")
    x, hidden = builder.input("x", "f32[N,8,4,4]"), builder.input("hidden", "f32[N,4,4,32]")
    w1, w2 = builder.param("w1", "f32[8,32]"), builder.param("w2", "f32[2,8,1,1]")
    transposed, term = ops.transpose(ops.linear(hidden, w1), 0, 3, 2, 1), ops.linear(hidden, w1)
    last = ops.linear(builder.input("last", "f32[N,8,4,32]"), builder.param("w3", "f32[4,32]"))
    kernel = builder.param("kernel", "f32[2,8,3,3]")
    return builder.finish(
        transposed=ops.conv2d(x + transposed, w2),
        other_axis=ops.conv2d(x + last, w2),
        larger_kernel=ops.conv2d(x + ops.transpose(term, 0, 3, 1, 2), kernel),
    )


@case("merge_linears")
def merge_linears_that_go_through_a_wide_middle() -> Graph:
    builder = Builder("through")
    x = builder.input("x", "f32[M,8]")
    wide = ops.linear(x, builder.param("w1", "f32[32,8]"), builder.param("b1", "f32[32]"))
    return builder.finish(y=ops.relu(ops.linear(wide, builder.param("w2", "f32[4,32]"))))


@case("merge_linears")
def merge_linears_leaves_a_narrow_middle_and_a_second_reader() -> Graph:
    builder = Builder("narrow")
    x = builder.input("x", "f32[M,8]")
    thin = ops.linear(x, builder.param("w1", "f32[2,8]"))
    wide = ops.linear(x, builder.param("w3", "f32[32,8]"))
    return builder.finish(
        y=ops.linear(thin, builder.param("w2", "f32[8,2]")),
        z=ops.linear(wide, builder.param("w4", "f32[4,32]"))
        + ops.reduce(wide, (1,), how="max", keep=True),
    )


@case("fuse_attention")
def fuse_attention_with_scale_and_mask() -> Graph:
    builder = Builder("attention")
    q, k, v = (builder.input(name, f"f32[B,{n},8]") for name, n in zip("qkv", "TMM", strict=True))
    mask = builder.input("mask", "f32[T,M]")
    scores = q @ ops.transpose(k, 0, 2, 1) * 0.125
    return builder.finish(y=ops.softmax(scores + mask) @ v)


@case("fuse_attention")
def fuse_attention_with_heads_and_division() -> Graph:
    builder = Builder("heads")
    q, k, v = (builder.input(name, "f32[B,M,8]") for name in "qkv")

    def split(x: Tensor) -> Tensor:
        B, M, _ = x.shape
        return ops.transpose(x.reshape(B, M, 2, 4), 0, 2, 1, 3)

    q2, k2, v2 = split(q), split(k), split(v)
    weights = ops.softmax(q2 @ ops.transpose(k2, 0, 1, 3, 2) / 2)
    B, M, _ = q.shape
    return builder.finish(y=ops.transpose(weights @ v2, 0, 2, 1, 3).reshape(B, M, 8))


@case("fuse_attention")
def fuse_attention_leaves_weights_that_are_read_twice() -> Graph:
    builder = Builder("read_twice")
    q, k, v = (builder.input(name, "f32[3,8]") for name in "qkv")
    weights = ops.softmax(q @ ops.transpose(k, 1, 0))
    return builder.finish(y=weights @ v, weights=weights)


@case("absorb_value_projection")
def absorb_value_projection_into_the_output_projection() -> Graph:
    builder = Builder("absorb")
    q, k = builder.input("q", "f32[B,T,256]"), builder.input("k", "f32[B,M,256]")
    memory = builder.input("memory", "f32[B,M,64]")
    value = ops.linear(memory, builder.param("wv", "f32[256,64]"), builder.param("bv", "f32[256]"))
    y = ops.attention(q, k, value, heads=1, scale=0.0625)
    return builder.finish(
        y=ops.linear(y, builder.param("wo", "f32[256,256]"), builder.param("bo", "f32[256]"))
    )


@case("absorb_value_projection")
def absorb_value_projection_without_an_output_projection() -> Graph:
    builder = Builder("alone")
    q, k = builder.input("q", "f32[T,8]"), builder.input("k", "f32[M,8]")
    value = ops.linear(builder.input("memory", "f32[M,4]"), builder.param("wv", "f32[8,4]"))
    return builder.finish(y=ops.attention(q, k, value, heads=1, scale=1.0))


@case("absorb_value_projection")
def absorb_value_projection_leaves_heads_and_narrow_values() -> Graph:
    builder = Builder("no_gain")
    q, k = builder.input("q", "f32[T,8]"), builder.input("k", "f32[M,8]")
    wide, narrow = builder.input("wide", "f32[M,16]"), builder.input("narrow", "f32[M,4]")
    first = ops.linear(wide, builder.param("w1", "f32[8,16]"))
    second = ops.linear(narrow, builder.param("w2", "f32[8,4]"))
    return builder.finish(
        y=ops.attention(q, k, first, heads=1, scale=1.0),
        z=ops.attention(q, k, second, heads=2, scale=1.0),
    )


@case("fuse_linear_activation")
def fuse_linear_activation_once() -> Graph:
    builder = Builder("activation")
    x = builder.input("x", "f32[M,4]")
    w, b = builder.param("w", "f32[4,4]"), builder.param("b", "f32[4]")
    read_twice = ops.linear(x, w)
    twice = ops.gelu(ops.relu(ops.linear(x, w, b)))
    return builder.finish(y=twice, z=ops.sigmoid(read_twice) + read_twice)


@case("merge_projections")
def merge_projections_of_one_value() -> Graph:
    builder = Builder("qkv")
    x = builder.input("x", "f32[B,M,8]")
    parts = [
        ops.linear(x, builder.param(f"w{n}", "f32[8,8]"), builder.param(f"b{n}", "f32[8]"))
        for n in "qkv"
    ]
    other = ops.linear(x, builder.param("wo", "f32[8,8]"))  # has no bias, so it stays apart
    return builder.finish(y=ops.attention(*parts, heads=2, scale=0.5), z=other)


def _strided(builder: Builder, x: Tensor, name: str, out: int) -> Tensor:
    """A 3 x 3 convolution in steps of two."""
    weight = builder.param(f"{name}.weight", TensorType((out, x.shape[1], 3, 3)))
    bias = builder.param(f"{name}.bias", TensorType((out,)))
    return ops.conv2d(x, weight, bias, stride=(2, 2), padding=(1, 1))


@case("pixels_to_channels")
def pixels_to_channels_until_a_cell_is_one_pixel() -> Graph:
    builder = Builder("mask")
    x, steep = builder.input("x", "f32[N,1,8,6]"), builder.input("steep", "f32[N,1,1,1]")
    scale, shift = builder.param("scale", "f32[4]"), builder.param("shift", "f32[4]")
    y = ops.sigmoid(ops.resize(x, (32, 24), how="bilinear") * steep) * 20
    y = ops.layer_norm_2d(_strided(builder, y, "first", 4), scale, shift, eps=1e-6)
    return builder.finish(y=ops.relu(_strided(builder, ops.gelu(y), "second", 16)))


@case("pixels_to_channels")
def pixels_to_channels_leaves_what_does_not_come_back_or_is_wide() -> Graph:
    builder = Builder("no_gain")
    x, wide = builder.input("x", "f32[N,1,4,4]"), builder.input("wide", "f32[N,2,4,4]")
    twice, four = (ops.resize(x, (n, n), how="bilinear") for n in (8, 16))
    kernel = builder.param("kernel", "f32[2,1,3,3]")
    row = builder.input("row", "f32[1,1,1,8]")
    return builder.finish(
        read_twice=_strided(builder, twice, "a", 2),
        output=twice,
        one_step_of_two=_strided(builder, four, "b", 2),
        no_steps=ops.conv2d(ops.resize(x, (8, 8), how="bilinear"), kernel, padding=(1, 1)),
        many_channels=_strided(
            builder, _strided(builder, ops.resize(x, (16, 16), how="bilinear"), "c", 5), "d", 2
        ),
        two_channels=_strided(builder, ops.resize(wide, (8, 8), how="bilinear"), "e", 2),
        three_times=_strided(builder, ops.resize(x, (12, 12), how="bilinear"), "f", 2),
        uneven=_strided(builder, ops.resize(x, (8, 16), how="bilinear"), "g", 2),
        nearest=_strided(builder, ops.resize(x, (8, 8), how="nearest"), "h", 2),
        a_row=_strided(builder, ops.resize(x, (8, 8), how="bilinear") + row, "i", 2),
    )


def test_every_pass_has_a_golden_graph() -> None:
    assert {step for step, _ in CASES.values()} == set(EVERY_PASS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_pass_does_what_its_golden_file_shows(name: str, golden_text: Golden) -> None:
    step, make = CASES[name]
    before = make()

    after = optimise(before, [EVERY_PASS[step]])

    golden_text(f"passes/{name}", f"{before}\n\n=> {step}\n\n{after}")
    assert parse_graph(print_graph(after, data=True)) == after


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_pass_has_nothing_left_to_do_the_second_time(name: str) -> None:
    step, make = CASES[name]

    once = optimise(make(), [EVERY_PASS[step]])

    assert optimise(once, [EVERY_PASS[step]]) == once
