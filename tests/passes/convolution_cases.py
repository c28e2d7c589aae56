"""Golden cases of the passes over convolutions and what follows them."""

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor
from tests.passes.golden_case import case


def _norm(builder: Builder, name: str, x: Tensor, channels: int) -> Tensor:
    """A batch norm with the statistics of training."""
    scale, shift, mean, variance = (
        builder.param(f"{name}.{part}", f"f32[{channels}]")
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    scale = scale / ops.sqrt(variance + 1e-5)
    shift = shift - mean * scale
    return x * scale.reshape(channels, 1, 1) + shift.reshape(channels, 1, 1)


@case("fold_batch_norm")
def fold_batch_norm_after_a_convolution() -> Graph:
    builder = Builder("norm")
    x = builder.input("x", "f32[B,3,4,4]")
    y = ops.conv2d(x, builder.param("c.weight", "f32[2,3,1,1]"))
    return builder.finish(y=_norm(builder, "bn", y, 2))


@case("fold_batch_norm")
def fold_batch_norm_leaves_what_is_read_twice_or_varies() -> Graph:
    builder = Builder("others")
    x, scale = builder.input("x", "f32[B,2,4,4]"), builder.input("scale", "f32[2,1,1]")
    weight = builder.param("weight", "f32[2,2,1,1]")
    wide = builder.param("wide", "f32[2,1,4]")
    seen = ops.conv2d(x, weight)
    return builder.finish(
        y=ops.conv2d(ops.relu(x), weight) * scale,
        z=seen * builder.param("fixed", "f32[2,1,1]"),
        seen=seen,
        w=ops.conv2d(ops.gelu(x), weight) + wide,
    )


@case("merge_depthwise")
def merge_depthwise_branches_of_a_token_mixer() -> Graph:
    builder = Builder("mixer")
    x = builder.input("x", "f32[B,4,6,6]")
    wide = ops.conv2d(
        x,
        builder.param("conv.weight", "f32[4,1,3,3]"),
        builder.param("conv.bias", "f32[4]"),
        padding=(1, 1),
        groups=4,
    )
    narrow = ops.conv2d(
        x, builder.param("conv1.weight", "f32[4,1,1,1]"), builder.param("b", "f32[4]"), groups=4
    )
    return builder.finish(y=wide + narrow + x)


@case("merge_depthwise")
def merge_depthwise_leaves_other_convolutions() -> Graph:
    builder = Builder("others")
    x = builder.input("x", "f32[B,4,6,6]")
    kernel, tall = builder.param("k", "f32[4,1,3,1]"), builder.param("t", "f32[4,1,1,3]")
    one, dense = builder.param("one", "f32[4,1,1,1]"), builder.param("dense", "f32[4,4,1,1]")
    high = ops.conv2d(x, kernel, padding=(1, 0), groups=4)
    flat = ops.conv2d(x, tall, padding=(0, 1), groups=4)
    return builder.finish(
        crossed=high + flat,
        elsewhere=ops.conv2d(ops.relu(x), one, groups=4) + x,
        mixed=ops.conv2d(x, dense) + x,
    )
