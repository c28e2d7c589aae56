"""Golden graphs for the passes of the OpenVINO engine, and for the decompositions it needs."""

import numpy as np

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor, emit
from tests.passes.golden_case import case


def _norm(builder: Builder, x: Tensor, channels: int, name: str = "norm") -> Tensor:
    scale, shift = (builder.param(f"{name}.{n}", f"f32[{channels}]") for n in ("scale", "shift"))
    return ops.layer_norm(x, scale, shift, eps=1e-6)


@case("decompose_axial_rope")
def decompose_axial_rope_of_a_linear_layer() -> Graph:
    builder = Builder("keys")
    x = builder.input("x", "f32[B,4*F+Q,8]")
    pointers = builder.input("pointers", "f32[Q]")
    keys = ops.linear(x, builder.param("w", "f32[8,8]"), builder.param("b", "f32[8]"))
    y = ops.axial_rope(keys, grid=(2, 2), theta=100.0, unrotated=pointers.shape[0])
    return builder.finish(y=y)


@case("decompose_axial_rope")
def decompose_axial_rope_of_pooled_frames() -> Graph:
    builder = Builder("pooled")
    x = builder.input("x", "f32[N,F+4,4]")
    y = ops.axial_rope(x, grid=(2, 2), theta=100.0, pooled=x.shape[1] - 4)
    return builder.finish(y=y)


@case("decompose_axial_rope")
def decompose_axial_rope_of_an_input() -> Graph:
    builder = Builder("queries")
    x = builder.input("x", "f32[B,4,8]")
    return builder.finish(y=ops.axial_rope(x, grid=(2, 2), theta=100.0, heads=2))


@case("decompose_layer_norm_2d")
def decompose_layer_norm_2d_of_an_image() -> Graph:
    builder = Builder("image")
    x = builder.input("x", "f32[B,4,8,8]")
    scale, shift = builder.param("scale", "f32[4]"), builder.param("shift", "f32[4]")
    with builder.exact():
        y = ops.layer_norm_2d(x, scale, shift, eps=1e-6)
    return builder.finish(y=y)


@case("resize_to_matmul")
def resize_to_matmul_of_known_sizes() -> Graph:
    builder = Builder("sizes")
    x, large = builder.input("x", "f32[N,1,4,6]"), builder.input("large", "f32[1,256,64,64]")
    any_size = builder.input("any_size", "f32[1,1,H,4]")
    return builder.finish(
        smaller=ops.resize(x, (2, 3), how="bilinear", antialias=True),
        twice_as_wide=ops.resize(x, (8, 12), how="bilinear"),
        larger=ops.resize(x, (8, 9), how="bicubic"),
        nearest=ops.resize(x, (8, 12), how="nearest"),
        too_large=ops.resize(large, (512, 512), how="bilinear"),
        symbolic=ops.resize(any_size, (4, 4), how="bilinear"),
    )


@case("absorb_norm_weights")
def absorb_norm_weights_into_linear_layers() -> Graph:
    builder = Builder("block")
    x = builder.input("x", "f32[B,4,4,8]")
    weight, bias = builder.param("weight", "f32[5,8]"), builder.param("bias", "f32[5]")
    y = _norm(builder, x, 8)
    windows = y.reshape(-1, 2, 2, 4, 8).transpose(0, 2, 1, 3, 4)
    return builder.finish(y=ops.linear(y, weight, bias), z=ops.linear(windows, weight))


@case("absorb_norm_weights")
def absorb_norm_weights_leaves_norms_that_others_read() -> Graph:
    builder = Builder("read")
    x, weight = builder.input("x", "f32[4,8]"), builder.param("weight", "f32[5,8]")
    added, padded, output = (_norm(builder, x, 8, name) for name in ("added", "padded", "output"))
    return builder.finish(
        added=ops.linear(added, weight) + ops.reduce(added, (1,), how="max", keep=True),
        padded=ops.linear(ops.pad(padded, (0, 0), (1, 0)), weight),
        projected=ops.linear(output, weight),
        output=output,
        by_channels=ops.linear(_norm(builder, x, 8, "weights"), _norm(builder, x, 8, "of")),
    )


@case("convolve_narrow_norms")
def convolve_narrow_norms_of_two_pixels() -> Graph:
    builder = Builder("narrow")
    x = builder.input("x", "f32[N,1,8,8]")
    weight, bias = builder.param("weight", "f32[8,1,3,3]"), builder.param("bias", "f32[8]")
    y = ops.conv2d(x, weight, bias, stride=(2, 2), padding=(1, 1)).transpose(0, 2, 3, 1)
    return builder.finish(y=_norm(builder, y.reshape(-1, 4, 4, 2, 4), 4))


@case("convolve_narrow_norms")
def convolve_narrow_norms_leaves_wide_and_shared_norms() -> Graph:
    builder = Builder("wide")
    x = builder.input("x", "f32[N,1,8,8]")
    wide = ops.conv2d(x, builder.param("wide", "f32[32,1,1,1]")).transpose(0, 2, 3, 1)
    narrow = ops.conv2d(x, builder.param("narrow", "f32[4,1,1,1]"))
    return builder.finish(
        wide=_norm(builder, wide, 32, "a"),
        shared=_norm(builder, narrow.transpose(0, 2, 3, 1), 4, "b"),
        output=narrow,
    )


@case("linear_to_pointwise")
def linear_to_pointwise_over_many_positions() -> Graph:
    builder = Builder("many")
    grid, tokens = builder.input("grid", "f32[1,16,16,4]"), builder.input("tokens", "f32[2,200,4]")
    weight, bias = builder.param("weight", "f32[8,4]"), builder.param("bias", "f32[8]")
    return builder.finish(y=ops.linear(grid, weight, bias), z=ops.linear(tokens, weight))


@case("linear_to_pointwise")
def linear_to_pointwise_leaves_few_positions_and_weights() -> Graph:
    builder = Builder("few")
    few, any_number = builder.input("few", "f32[255,4]"), builder.input("any", "f32[N,256,4]")
    x, table = builder.input("x", "f32[1,16,16,4]"), builder.param("table", "f32[1,16,16,4]")
    weight, narrow = builder.param("weight", "f32[8,4]"), builder.param("narrow", "f32[3,4]")
    activated = emit("linear", x, weight, activation="gelu")
    return builder.finish(
        few=ops.linear(few, weight),
        symbolic=ops.linear(any_number, weight),
        activated=activated,
        computed_once=ops.linear(table, weight) + ops.linear(few, weight)[:1],
        a_picture=ops.linear(x, narrow).transpose(0, 3, 1, 2),
    )


@case("products_in_bf16")
def products_in_bf16_that_are_large() -> Graph:
    builder = Builder("large")
    x, image = builder.input("x", "f32[B,256,64]"), builder.input("image", "f32[1,32,64,64]")
    weight, bias = builder.param("weight", "f32[128,64]"), builder.param("bias", "f32[128]")
    kernel, shift = builder.param("kernel", "f32[32,32,3,3]"), builder.param("shift", "f32[32]")
    return builder.finish(
        layer=emit("linear", x, weight, bias, activation="gelu"),
        convolution=ops.conv2d(image, kernel, shift, padding=(1, 1)),
        attention=ops.attention(x, x, x, heads=2, scale=0.2),
        product=ops.matmul(x, ops.transpose(x, 0, 2, 1)),
    )


@case("products_in_bf16")
def products_in_bf16_leaves_small_and_exact_products() -> Graph:
    builder = Builder("small")
    x, mask = builder.input("x", "f32[B,256,64]"), builder.input("mask", "f32[B,1,1,256]")
    weight, narrow = builder.param("weight", "f32[128,64]"), builder.param("narrow", "f32[8,64]")
    image, depthwise = (
        builder.input("image", "f32[1,64,64,64]"),
        builder.param("d", "f32[64,1,7,7]"),
    )
    resize = builder.constant(np.ones((512, 256)), "f32")
    with builder.exact():
        exact = ops.linear(x, weight)
    return builder.finish(
        exact=exact,
        few=ops.linear(x[:, :2], weight),
        narrow=ops.linear(x, narrow),
        depthwise=ops.conv2d(image, depthwise, padding=(3, 3), groups=64),
        masked=ops.attention(x, x, x, mask, heads=1, scale=1.0),
        resized=ops.matmul(resize, x),
    )


@case("maps_to_tokens")
def maps_to_tokens_around_a_norm() -> Graph:
    builder = Builder("block")
    x, position = builder.input("x", "f32[2,3,5,8]"), builder.param("position", "f32[1,3,5,8]")
    x = x + position
    y = x + ops.linear(_norm(builder, x, 8), builder.param("weight", "f32[8,8]"))
    return builder.finish(y=y, symbolic=_norm(builder, builder.input("s", "f32[N,3,5,8]"), 8, "n"))


@case("maps_to_tokens")
def maps_to_tokens_leaves_images_and_rows() -> Graph:
    builder = Builder("other")
    x, image = builder.input("x", "f32[2,3,5,8]"), builder.input("image", "f32[2,8,3,5]")
    row, weight = builder.param("row", "f32[5,8]"), builder.param("weight", "f32[8,8]")
    tokens = builder.input("tokens", "f32[2,15,8]")
    return builder.finish(
        no_norm_is_near=image + image,
        a_row=ops.linear((x + row).reshape(2, 15, 8), weight),
        three_axes=_norm(builder, tokens + tokens, 8),
    )


@case("expose_channels_last")
def expose_channels_last_around_convolutions() -> Graph:
    builder = Builder("maps")
    x, weight = builder.input("x", "f32[N,8,4,6]"), builder.param("weight", "f32[8,8,1,1]")
    tokens = x.transpose(0, 2, 3, 1).reshape(-1, 24, 8)
    y = ops.conv2d(x, weight)
    return builder.finish(y=y, again=y, added=ops.relu(y) + y, tokens=tokens)


@case("expose_channels_last")
def expose_channels_last_leaves_images_and_other_readers() -> Graph:
    builder = Builder("staying")
    picture, x = builder.input("picture", "f32[N,3,4,6]"), builder.input("x", "f32[N,8,4,6]")
    weight = builder.param("weight", "f32[4,3,1,1]")
    wide = builder.param("wide", "f32[4,8,1,1]")
    return builder.finish(
        a_picture=ops.conv2d(picture, weight),
        read_otherwise=ops.conv2d(x, wide),
        by=ops.relu(x),
        already=(x.transpose(0, 2, 3, 1) * 2.0).transpose(0, 3, 1, 2),
    )


@case("absorb_key_rotation")
def absorb_key_rotation_of_a_memory() -> Graph:
    builder = Builder("memory")
    x, q = builder.input("x", "f32[B,4*F+Q,2]"), builder.input("q", "f32[B,4,8]")
    pointers = builder.input("pointers", "f32[Q]")
    keys = ops.linear(x, builder.param("w", "f32[8,2]"), builder.param("b", "f32[8]"))
    keys = ops.axial_rope(keys, grid=(2, 2), theta=100.0, unrotated=pointers.shape[0])
    return builder.finish(y=ops.attention(q, keys, x, heads=1, scale=0.5))


@case("absorb_key_rotation")
def absorb_key_rotation_of_pooled_frames() -> Graph:
    builder = Builder("pooled")
    x, q = builder.input("x", "f32[B,F+4,2]"), builder.input("q", "f32[B,4,8]")
    mask, F = builder.input("mask", "f32[F+4]"), x.shape[1] - 4
    keys = ops.linear(x, builder.param("w", "f32[8,2]"), builder.param("b", "f32[8]"))
    keys = ops.axial_rope(keys, grid=(2, 2), theta=100.0, pooled=F)
    return builder.finish(y=ops.attention(q, keys, x, mask, heads=1, scale=0.5))


@case("absorb_key_rotation")
def absorb_key_rotation_leaves_wide_and_shared_keys() -> Graph:
    builder = Builder("wide")
    x, q = builder.input("x", "f32[B,4,8]"), builder.input("q", "f32[B,4,8]")
    wide = ops.linear(x, builder.param("w", "f32[8,8]"))
    narrow = ops.linear(x[..., :2], builder.param("n", "f32[8,2]"))
    wide, narrow = (ops.axial_rope(k, grid=(2, 2), theta=100.0) for k in (wide, narrow))
    y = ops.attention(q, wide, x, heads=1, scale=0.5)
    z = ops.attention(q, narrow, x, heads=1, scale=0.5)
    return builder.finish(y=y, z=z, keys=narrow)


@case("attention_to_flash")
def attention_to_flash_of_many_tokens() -> Graph:
    builder = Builder("many")
    x, few = builder.input("x", "f32[B,1024,4]"), builder.input("few", "f32[B,M,4]")
    y = ops.attention(x, x, x, heads=2, scale=0.5)
    return builder.finish(y=y, z=ops.attention(few, x, x, heads=2, scale=0.5))
