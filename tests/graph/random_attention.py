"""Steps of random graphs for the passes that look for large or rotated attention."""

import math

import numpy as np

from samgraph import ops
from samgraph.graph import Builder, Tensor, TensorType
from tests.ops.drawing import Draw, flag, pick


def _param(builder: Builder, *shape: int, like: Tensor) -> Tensor:
    return builder.param(f"w{len(builder._params)}", TensorType(shape, like.dtype))


def rotated_memory(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Attention over the rotated projection of frames of 2 x 3 tokens, then unrotated tokens."""
    if len(x.shape) != 3:
        return x
    C, D = x.type.length(2), 4 * x.type.length(2)
    memory = ops.tile(ops.sin(x), 1, 6, 1)
    if flag(draw):
        memory = ops.concat([memory, ops.cos(x)], axis=1)
    bias = _param(builder, D, like=x) if flag(draw) else None
    keys = ops.linear(memory, _param(builder, D, C, like=x), bias)
    plain = memory.shape[1] - 6 * x.shape[1]
    scale, queries = pick(draw, (0.3, 1.0)), ops.linear(x, _param(builder, D, C, like=x))
    if flag(draw):
        pooled = 2 * x.shape[1]
        keys = ops.axial_rope(keys, grid=(2, 2), theta=100.0, unrotated=plain, pooled=pooled)
        mask = memory.shape[1:2]
        shift = ops.expand(builder.constant(np.array([math.log(4)]), x.dtype), *mask)
        return ops.attention(queries, keys, memory, shift, heads=1, scale=scale)
    keys = ops.axial_rope(keys, grid=(2, 3), theta=100.0, unrotated=plain)
    return ops.attention(queries, keys, memory, heads=1, scale=scale)


def many_tokens(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Attention among 1,024 tokens, averaged."""
    if len(x.shape) != 3:
        return x
    C = x.type.length(2)
    table = builder.constant(np.sin(np.arange(1024 * C)).reshape(1024, C), x.dtype)
    tokens = ops.reduce(x, (1,), how="mean", keep=True) + table
    mask = tokens[:, None, :, :1] if flag(draw) else None
    y = ops.attention(tokens, ops.cos(tokens), tokens, mask, heads=1, scale=0.5)
    return ops.reduce(y, (1,), how="mean", keep=True) + x
