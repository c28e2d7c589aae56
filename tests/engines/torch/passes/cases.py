"""Graphs for each pass of the torch engine: the part of SAM 2 that it rewrites, at small sizes.

Every case is a function of `Sizes`, so that a golden file shows one graph and the property test
draws many. A pass sees what the passes before it in the engine's pipeline have made of a graph.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor, symbol
from samgraph.models.sam2 import hiera, mask_decoder, memory_attention, memory_encoder, two_way
from samgraph.models.sam2.layers import layer_norm, linear, mlp


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a case is made with."""

    channels: int = 16  # a multiple of 8
    heads: int = 2
    tokens: int = 3
    grid: int = 4  # even
    window: int = 2  # even
    eps: float = 1e-6

    @property
    def config(self) -> Any:
        """The fields of a model's config that the parts read."""
        return SimpleNamespace(
            channels=self.channels,
            decoder_heads=self.heads,
            memory_heads=1,
            memory_pool=1,
            grid=self.grid,
            rope_theta=100.0,
            norm_eps=self.eps,
            transformer_norm_eps=self.eps,
            mask_stride=4,
            stage_channels=(self.channels, 2 * self.channels),
            heads=self.heads,
            mlp_ratio=2,
        )


Case = Callable[[Sizes], Graph]
CASES: dict[str, list[Case]] = {}


def case(step: str) -> Callable[[Case], Case]:
    """Register a graph for the pass `step`; the golden file is called after the function."""

    def add(make: Case) -> Case:
        CASES.setdefault(step, []).append(make)
        return make

    return add


def _tokens(builder: Builder, sizes: Sizes, name: str = "tokens") -> Tensor:
    return builder.input(name, f"f32[N,{sizes.tokens},{sizes.channels}]")


def _cells(builder: Builder, sizes: Sizes, name: str = "image") -> Tensor:
    return builder.input(name, f"f32[N,{sizes.grid**2},{sizes.channels}]")


@case("read_bank")
def bank_read_by_page(sizes: Sizes) -> Graph:
    builder = Builder("bank")
    C, T = sizes.channels, sizes.grid**2
    pages = builder.input("pages", f"f32[P,{T},{C}]")
    frames, slots = builder.input("frames", "i64[N,F]"), builder.input("slots", "i64[N,F]")
    tokens, positions = (builder.input(name, f"f32[N,Q,{C}]") for name in ("tokens", "positions"))
    N, F = symbol("N"), symbol("F")
    values = ops.concat([ops.gather(pages, frames, 0).reshape(N, F * T, C), tokens], axis=1)
    grid = builder.constant(np.sin(np.arange(T * C)).reshape(1, 1, T, C), "f32")
    times = ops.gather(builder.param("times", f"f32[2,{C}]"), slots, 0).reshape(N, F, 1, C)
    where = ops.concat([(times + grid).reshape(N, F * T, C), positions], axis=1)
    return builder.finish(values=values, keys=values + where)


@case("attend_windows")
def attention_in_windows_of_a_map(sizes: Sizes) -> Graph:
    return _block(sizes, pools=False)


@case("attend_windows")
def attention_in_windows_that_pool(sizes: Sizes) -> Graph:
    return _block(sizes, pools=True)


def _block(sizes: Sizes, *, pools: bool) -> Graph:
    builder = Builder("block")
    side = 2 * sizes.window + (0 if pools else 1)  # of which some windows are padded
    x = builder.input("x", f"f32[N,{side},{side},{sizes.channels}]")
    at = builder.scope()
    return builder.finish(y=hiera.block(at, sizes.config, x, int(pools), sizes.window, pools))


@case("attend_image")
def tokens_that_attend_to_an_image(sizes: Sizes) -> Graph:
    builder = Builder("to_image")
    tokens, image = _tokens(builder, sizes), _cells(builder, sizes)
    keys = _cells(builder, sizes, "keys")
    at, config = builder.scope() / "attention", sizes.config
    return builder.finish(y=two_way.attention(at, config, tokens, keys, image, halved=True))


@case("attend_tokens")
def an_image_that_attends_to_tokens(sizes: Sizes) -> Graph:
    builder = Builder("to_tokens")
    tokens, image = _tokens(builder, sizes), _cells(builder, sizes)
    queries, keys = _cells(builder, sizes, "queries"), _tokens(builder, sizes, "keys")
    mask = builder.input("mask", f"f32[N,1,1,{sizes.tokens}]")
    at, config = builder.scope(), sizes.config
    y = two_way.attention(at / "attention", config, queries, keys, tokens, mask, halved=True)
    return builder.finish(y=layer_norm(at / "norm", image + y, eps=sizes.eps))


@case("fuse_mask_upscaling")
def masks_of_an_enlarged_image(sizes: Sizes) -> Graph:
    builder = Builder("masks")
    C, E = sizes.channels, sizes.grid
    image = builder.input("image", f"f32[N,{E * E},{C}]")
    fine = builder.input("fine_0", f"f32[N,{C // 8},{4 * E},{4 * E}]")
    coarse = builder.input("fine_1", f"f32[N,{C // 4},{2 * E},{2 * E}]")
    weights, N = builder.input("weights", f"f32[N,4,{C // 8}]"), symbol("N")
    cells = image.reshape(N, E, E, C).transpose(0, 3, 1, 2)
    large = mask_decoder.upscale(builder.scope(), sizes.config, cells, (fine, coarse))
    masks = ops.matmul(weights, large.reshape(N, C // 8, 16 * E * E))
    return builder.finish(masks=masks.reshape(N, 4, 4 * E, 4 * E))


@case("group_mlps")
def perceptrons_of_a_token_each(sizes: Sizes) -> Graph:
    builder = Builder("heads")
    tokens, at, C = _tokens(builder, sizes), builder.scope(), sizes.channels
    parts = {
        f"y{i}": mlp(at / i, tokens[:, i], (C, C, C // 8 if i else C)) for i in range(sizes.tokens)
    }
    return builder.finish(parts)


@case("join_slices")
def neighbouring_slices_put_together(sizes: Sizes) -> Graph:
    builder = Builder("slices")
    tokens, T = _tokens(builder, sizes), sizes.tokens
    parts = [tokens[:, i : i + 1] for i in range(T)]
    again = [tokens[:, i][:, None] for i in range(T)]
    return builder.finish(
        all_of_it=ops.concat(parts, axis=1) * 2.0,
        some=ops.relu(ops.concat(again[1:], axis=1)) if T > 2 else ops.relu(tokens),
        mixed=ops.concat([parts[-1], parts[0]], axis=1),
    )


@case("fuse_convolutions")
def convolutions_with_a_norm(sizes: Sizes) -> Graph:
    builder = Builder("convolutions")
    C, E = sizes.channels, 2 * sizes.grid
    x, deep = builder.input("x", f"f32[N,2,{E},{E}]"), builder.input("deep", f"f32[N,{C},{E},{E}]")

    def norm(name: str, y: Tensor) -> Tensor:
        scale, shift = (builder.param(f"{name}.{n}", f"f32[{C}]") for n in ("scale", "shift"))
        return ops.layer_norm_2d(y, scale, shift, eps=sizes.eps)

    weight, bias = builder.param("w", f"f32[{C},2,3,3]"), builder.param("b", f"f32[{C}]")
    own, own_bias = builder.param("own", f"f32[{C},1,7,7]"), builder.param("own_b", f"f32[{C}]")
    strided = ops.conv2d(x, weight, bias, stride=(2, 2), padding=(1, 1))
    depthwise = ops.conv2d(deep, own, own_bias, padding=(3, 3), groups=C)
    return builder.finish(y=ops.gelu(norm("first", strided)), z=norm("second", depthwise))


@case("fuse_convolutions")
def patches_with_their_positions(sizes: Sizes) -> Graph:
    builder = Builder("patches")
    C, E = sizes.channels, sizes.grid
    image = builder.input("image", f"f32[N,3,{4 * E},{4 * E}]")
    weight, bias = builder.param("w", f"f32[{C},3,7,7]"), builder.param("b", f"f32[{C}]")
    y = ops.conv2d(image, weight, bias, stride=(4, 4), padding=(3, 3)).transpose(0, 2, 3, 1)
    return builder.finish(y=y + builder.param("positions", f"f32[1,{E},{E},{C}]"))


@case("fuse_convolutions")
def a_mask_enlarged_for_memory(sizes: Sizes) -> Graph:
    builder = Builder("mask")
    C, E = sizes.channels, sizes.grid
    mask = builder.input("mask", f"f32[N,1,{E},{E}]")
    binary = builder.input("binary", "bool[N,1,1,1]")
    steep = memory_encoder.steepen(mask, binary)
    large = ops.resize(steep, (4 * E, 4 * E), how="bilinear")
    weight, bias = builder.param("w", f"f32[{C},1,3,3]"), builder.param("b", f"f32[{C}]")
    y = ops.conv2d(memory_encoder.mask_for_memory(large), weight, bias)
    return builder.finish(y=y)


@case("maps_channels_last")
def pointwise_convolutions_of_maps(sizes: Sizes) -> Graph:
    builder = Builder("maps")
    C, E = sizes.channels, sizes.grid
    x = builder.input("x", f"f32[N,{C},{E},{E}]")
    half = builder.input("half", f"f32[N,{C},{E // 2},{E // 2}]")

    def pointwise(name: str, y: Tensor) -> Tensor:
        weight = builder.param(f"{name}.w", f"f32[{C},{C},1,1]")
        return ops.conv2d(y, weight, builder.param(f"{name}.b", f"f32[{C}]"))

    top = ops.resize(pointwise("coarse", half), (E, E), how="nearest")
    return builder.finish(y=pointwise("fine", x) + top)


@case("merge_columns")
def layers_of_one_value(sizes: Sizes) -> Graph:
    builder = Builder("columns")
    x, C, at = _tokens(builder, sizes), sizes.channels, builder.scope()
    scale = builder.param("scale", f"f32[{C},1]")
    weight, bias = builder.param("w", f"f32[{C},{C}]"), builder.param("b", f"f32[{C}]")
    made = ops.linear(x, weight * scale, bias)  # its weights are computed from params
    return builder.finish(y=ops.sin(made), z=ops.cos(linear(at / "plain", x, C // 2)))


@case("fuse_rotations")
def attention_of_rotated_queries_and_keys(sizes: Sizes) -> Graph:
    builder = Builder("rotated")
    x, at = _cells(builder, sizes), builder.scope()
    return builder.finish(y=memory_attention.rope_attention(at, sizes.config, x, x, x, 0))


@case("fuse_rotations")
def attention_beside_one_to_pooled_keys(sizes: Sizes) -> Graph:
    """Keys of the second are averaged after their rotation: it keeps both of its own."""
    builder = Builder("beside")
    config, C, half = sizes.config, sizes.channels, sizes.grid // 2
    x, memory, at = _cells(builder, sizes), _cells(builder, sizes, "memory"), builder.scope()
    y = memory_attention.rope_attention(at / "plain", config, x, x, x, 0)
    q, k, v = memory_attention.project(at / "pooled", config, y, memory, memory)
    q, k = (memory_attention.rotate(config, rows, 0) for rows in (q, k))
    k, v = (
        ops.reduce(rows.reshape(symbol("N"), half, 2, half, 2, C), (2, 4), how="mean").reshape(
            symbol("N"), half**2, C
        )
        for rows in (k, v)
    )
    return builder.finish(y=y, z=ops.attention(q, k, v, heads=1, scale=C**-0.5))


@case("fuse_linears")
def a_layer_with_norm_and_addition(sizes: Sizes) -> Graph:
    builder = Builder("residual")
    x, at = _tokens(builder, sizes), builder.scope()
    normal = layer_norm(at / "norm", x, eps=sizes.eps)
    hidden = ops.gelu(linear(at / "first", normal, 2 * sizes.channels))
    other = ops.sigmoid(linear(at / "apart", x, sizes.channels))  # an activation it does not have
    return builder.finish(y=x + linear(at / "second", hidden, sizes.channels), z=other)


@case("fuse_mlps")
def a_feed_forward_block(sizes: Sizes) -> Graph:
    builder = Builder("feed_forward")
    x, at = _tokens(builder, sizes), builder.scope()
    normal = layer_norm(at / "norm", x, eps=sizes.eps)
    y = mlp(at / "mlp", normal, (2 * sizes.channels, sizes.channels), gelu=True)
    return builder.finish(y=x + y)


@case("defer_biases")
def a_wide_residual_stream(sizes: Sizes) -> Graph:
    builder = Builder("stream")
    wide = 16 * sizes.channels + 8
    x = builder.input("x", f"f32[N,{sizes.tokens},{wide}]")
    at = builder.scope()
    for i in range(2):
        own = at / i
        normal = layer_norm(own / "norm", x, eps=sizes.eps)
        x = x + mlp(own / "mlp", normal, (16, wide), gelu=True)
    y = layer_norm(at / "norm", x, eps=sizes.eps)
    return builder.finish(y=linear(at / "out", y, 4))
