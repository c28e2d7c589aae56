"""Random small graphs that a person might have written, and arrays to run them with.

The graphs are of the kind the passes look for: chains of linear layers and activations, attention
written out or not, movement that cancels, constants that can be folded, things computed twice.
"""

from collections.abc import Callable, Mapping

import numpy as np
from hypothesis import strategies as st

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor
from samgraph.graph.dims import Dim, evaluate
from samgraph.graph.types import INTEGERS, Array, DType, TensorType, numpy_dtype
from tests.graph.random_attention import many_tokens, rotated_memory
from tests.graph.random_convolutions import normed_convolution, summed_branches
from tests.ops.drawing import Draw, flag, number, pick

Step = Callable[[Draw, Builder, Tensor], Tensor]


def _weight(builder: Builder, *shape: int, dtype: DType) -> Tensor:
    return builder.param(f"w{len(builder._params)}", TensorType(shape, dtype))


def _width(x: Tensor) -> int:
    last = x.shape[-1]
    return last if isinstance(last, int) else 1


def _activation(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    function: Callable[[Tensor], Tensor]
    function = pick(draw, (ops.relu, ops.gelu, ops.sigmoid, ops.sin, ops.cos))
    return function(x)


def _linear(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    out = pick(draw, (4, 8, 12))
    bias = _weight(builder, out, dtype=x.dtype) if flag(draw) else None
    y = ops.linear(x, _weight(builder, out, _width(x), dtype=x.dtype), bias)
    return ops.gelu(y) if flag(draw) else y


def _projections(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Two or three linear maps of one value."""
    parts = []
    for _ in range(number(draw, 2, 3)):
        bias = _weight(builder, 4, dtype=x.dtype) if flag(draw) else None
        parts.append(ops.linear(x, _weight(builder, 4, _width(x), dtype=x.dtype), bias))
    return ops.concat(parts, -1)


def _norm(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    scale, shift = (_weight(builder, _width(x), dtype=x.dtype) for _ in range(2))
    return ops.layer_norm(x, scale, shift, eps=pick(draw, (1e-6, 1e-5)))


def _softmax(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    return ops.softmax(x, pick(draw, (-1, len(x.shape) - 1)))


def _arithmetic(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    side = pick(draw, (2, -1, 0.5))
    other = x * side if flag(draw) else side
    y = pick(draw, (lambda: x + other, lambda: x - other, lambda: x * side, lambda: x / 4))()
    if flag(draw):
        y = y + np.arange(_width(x)).astype(numpy_dtype(x.dtype)) / 8
    return ops.sin(y) if flag(draw) else ops.sigmoid(y)  # stays of ordinary size


def _constants(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Something that depends on constants only."""
    size = pick(draw, (_width(x), 1))
    made = builder.constant(np.linspace(0.5, 1.5, 3 * size).reshape(3, size), x.dtype)
    small = ops.reduce(ops.sqrt(made) * 0.5, (0,), how="mean")
    return x * (small if flag(draw) else ops.sin(small))


def _movement(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    """Transpose, perhaps there and back; split and join the last axis."""
    if flag(draw):
        first, second = (draw(st.permutations(range(len(x.shape)))) for _ in range(2))
        both = [first[axis] for axis in second]
        back = tuple(both.index(axis) for axis in range(len(both)))
        x = ops.transpose(ops.transpose(ops.transpose(x, *first), *second), *back)
    half = _width(x) // 2
    if half * 2 == _width(x) and isinstance(x.shape[-1], int):
        split = x.reshape(*x.shape[:-1], 2, half)
        x = split.reshape(*x.shape) if flag(draw) else split.reshape(*x.shape[:-1], half, 2)
        x = x.reshape(*x.shape[:-2], half * 2) if len(x.shape) > 3 else x
    return x


def _cut(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    width = _width(x)
    start = number(draw, 0, width - 1)
    piece = x[..., start:] if flag(draw) else x[..., ::2]
    return ops.concat([piece, x], -1)


def _grow(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    zero = (0,) * (len(x.shape) - 1)
    if flag(draw):
        return ops.pad(x, (*zero, 1), (*zero, 3), 0.25)
    return ops.tile(x, *((1,) * (len(x.shape) - 1)), 2)


def _compare(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    mask = ops.compare(x, pick(draw, (0, 0.5)), pick(draw, ("lt", "ge", "eq")))
    if flag(draw):
        return ops.where(mask, x, 0.25)
    return ops.cast(mask, x.dtype) + ops.clip(x, -0.5, 0.5)


def _reduce(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    how = pick(draw, ("sum", "mean", "max", "min"))
    return ops.sin(ops.reduce(x, (-1,), how=how, keep=True)) + x


def _best(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    """Which element is largest, and that element again by its index."""
    index = ops.reduce(x, (len(x.shape) - 1,), how="argmax")
    best = ops.gather(x, index, len(x.shape) - 1, batch=len(x.shape) - 1)
    return x - best[..., None]


def _twice(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    return ops.sin(x) * ops.sin(x)


def _attention(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Over [B, T, C], written out or as one op, with or without projections, scale, mask, heads."""
    if len(x.shape) != 3:
        return x
    C, heads = 8, pick(draw, (1, 2))
    q, k, v = (ops.linear(x, _weight(builder, C, _width(x), dtype=x.dtype)) for _ in range(3))
    out = _weight(builder, C, C, dtype=x.dtype)
    if flag(draw):
        return ops.linear(ops.attention(q, k, v, heads=heads, scale=0.5), out)
    if heads > 1:
        q, k, v = (_split(part, heads) for part in (q, k, v))
    rank = len(q.shape)
    scores = q @ ops.transpose(k, *range(rank - 2), rank - 1, rank - 2)
    scores = pick(draw, (lambda: scores * 0.5, lambda: 0.25 * scores, lambda: scores / 2))()
    if flag(draw):
        bias = ops.reduce(ops.sin(x), (2,), how="mean")  # [B, T]
        B, T = x.shape[:2]
        mask = bias.reshape(B, *((1,) * (rank - 2)), T)
        scores = scores + mask if flag(draw) else mask + scores
    y = ops.softmax(scores) @ v
    if heads > 1:
        y = ops.transpose(y, 0, 2, 1, 3).reshape(*x.shape[:2], C)
    return ops.linear(y, out) if flag(draw) else y


def _split(x: Tensor, heads: int) -> Tensor:
    B, T, C = x.shape
    size: Dim = int(str(C)) // heads
    return ops.transpose(x.reshape(B, T, heads, size), 0, 2, 1, 3)


def _narrow_value(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Attention whose value is a wider projection of something narrow."""
    if len(x.shape) != 3:
        return x
    memory = ops.linear(x, _weight(builder, 4, _width(x), dtype=x.dtype))
    bias = _weight(builder, 8, dtype=x.dtype) if flag(draw) else None
    value = ops.linear(memory, _weight(builder, 8, 4, dtype=x.dtype), bias)
    y = ops.attention(x, x, value, heads=1, scale=0.3)
    if flag(draw):
        return y
    late = _weight(builder, 8, dtype=x.dtype) if flag(draw) else None
    return ops.linear(y, _weight(builder, 8, 8, dtype=x.dtype), late)


def _through_the_middle(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Two linear maps in a row, the middle wide or narrow, read once or twice."""
    bias = _weight(builder, 12, dtype=x.dtype) if flag(draw) else None
    middle = ops.linear(x, _weight(builder, 12, _width(x), dtype=x.dtype), bias)
    y = ops.linear(middle, _weight(builder, 4, 12, dtype=x.dtype))
    return y + ops.reduce(middle, (-1,), how="max", keep=True) if flag(draw) else y


def _pointwise(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """One or two 1 x 1 convolutions of channels that stand last."""
    C = _width(x)
    image = ops.transpose(x.reshape(-1, 1, 1, C), 0, 3, 1, 2)
    image = ops.conv2d(image, _weight(builder, 8, C, 1, 1, dtype=x.dtype))
    if flag(draw):
        image = ops.conv2d(image, _weight(builder, 8, 8, 1, 1, dtype=x.dtype))
    return ops.sin(ops.transpose(image, 0, 2, 3, 1).reshape(*x.shape[:-1], 8))


def _residual(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """A linear map, perhaps scaled, added to what it reads; then one that narrows or widens."""
    if number(draw, 0, 2) == 0:
        return _residual_image(draw, builder, x)
    C = _width(x)
    bias = _weight(builder, C, dtype=x.dtype) if flag(draw) else None
    y = ops.linear(ops.sin(x), _weight(builder, C, C, dtype=x.dtype), bias)
    if flag(draw):
        scale = _weight(builder, C, dtype=x.dtype)
        y = y * scale if flag(draw) else scale * y
    total = x + y if flag(draw) else y + x
    out = pick(draw, (2, 4, 12))
    late = _weight(builder, out, dtype=x.dtype) if flag(draw) else None
    y = ops.linear(total, _weight(builder, out, C, dtype=x.dtype), late)
    return y + ops.reduce(total, (-1,), how="max", keep=True) if flag(draw) else ops.sin(y)


def _residual_image(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """The same with images: the term has its channels last, the sum has them second."""
    C = _width(x)
    cells = x.reshape(-1, 1, 1, C)
    term = ops.linear(ops.sin(cells), _weight(builder, C, C, dtype=x.dtype))
    total = ops.sin(ops.transpose(cells, 0, 3, 1, 2)) + ops.transpose(term, 0, 3, 1, 2)
    bias = _weight(builder, 2, dtype=x.dtype) if flag(draw) else None
    image = ops.conv2d(total, _weight(builder, 2, C, 1, 1, dtype=x.dtype), bias)
    return ops.sin(ops.transpose(image, 0, 2, 3, 1).reshape(*x.shape[:-1], 2))


def _enlarged(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """An image of one channel, enlarged for strided convolutions."""
    if len(x.shape) != 3 or _width(x) % 2:
        return x
    row = ops.reduce(x, (1,), how="mean", keep=True)
    image, times = row.reshape(-1, 1, 2, _width(x) // 2), pick(draw, (2, 4))
    image = ops.resize(image, (2 * times, _width(x) // 2 * times), how="bilinear")
    if flag(draw):
        image = ops.sigmoid(image * 3 + ops.reduce(row, (2,), how="max", keep=True)[..., None])
    channels = 1
    while times > 1:
        out = pick(draw, (2, 4, 5))
        weight = _weight(builder, out, channels, 3, 3, dtype=x.dtype)
        bias = _weight(builder, out, dtype=x.dtype) if flag(draw) else None
        image = ops.conv2d(image, weight, bias, stride=(2, 2), padding=(1, 1))
        if flag(draw):
            scale, shift = (_weight(builder, out, dtype=x.dtype) for _ in range(2))
            image = ops.gelu(ops.layer_norm_2d(image, scale, shift, eps=1e-2))
        times, channels = times // 2, out
    return ops.sin(image.reshape(-1, channels, _width(x)))


def _cross_attention(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Few queries of many projected keys, or many projected queries of few keys."""
    if len(x.shape) != 3:
        return x
    C, heads = _width(x), pick(draw, (1, 2))
    inner = pick(draw, (2 * heads * C, 2 * heads * C, heads))
    few = ops.reduce(ops.sin(x), (1,), how="mean", keep=True)

    def project(y: Tensor, out: int) -> Tensor:
        bias = _weight(builder, out, dtype=x.dtype) if flag(draw) else None
        return ops.linear(y, _weight(builder, out, _width(y), dtype=x.dtype), bias)

    scale, mask = pick(draw, (0.3, 1.0)), None
    if flag(draw):
        q = project(few, inner) if flag(draw) else ops.tile(few, 1, 1, inner)[..., :inner]
        y = ops.attention(
            q, project(x, inner), project(ops.cos(x), inner), heads=heads, scale=scale
        )
        return project(y, C) + x
    if flag(draw):
        mask = few[:, :, None, :1] if flag(draw) else few[:, None, :, :1]
    q, k, v = project(x, inner), project(few, inner), project(few, inner)
    if flag(draw):
        q = ops.expand(ops.reduce(q, (0,), how="max", keep=True), *q.shape)
    return project(ops.attention(q, k, v, mask, heads=heads, scale=scale), C)


def _upscaled(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Transposed convolutions with kernel = stride, with finer maps, and a product at the end."""
    H, W = pick(draw, ((1, 1), (2, 2), (1, 4)))
    out, C = 3, _width(x) // (H * W)
    if _width(x) != C * H * W:
        return x
    image = ops.transpose(x.reshape(-1, H, W, C), 0, 3, 1, 2)
    for _ in range(number(draw, 1, 2)):
        bias = _weight(builder, out, dtype=x.dtype) if flag(draw) else None
        kernel = pick(draw, ((2, 2), (1, 3)))
        weight = _weight(builder, _channels(image), out, *kernel, dtype=x.dtype)
        image = ops.conv_transpose2d(image, weight, bias, stride=kernel)
        if flag(draw):
            fine = _weight(builder, 1, *map(_known, image.shape[1:]), dtype=x.dtype)
            image = image + fine if flag(draw) else fine * image
        if flag(draw):
            scale, shift = (_weight(builder, out, dtype=x.dtype) for _ in range(2))
            image = ops.gelu(ops.layer_norm_2d(image, scale, shift, eps=1e-2) * 2)
    N, _, height, width = image.shape
    if flag(draw):
        flat = image.reshape(N, out, height * width)
        nets = _weight(builder, 1, 2, out, dtype=x.dtype)
        image = ops.matmul(nets, flat).reshape(N, 2, height, width)
    return ops.sin(image).reshape(*x.shape[:-1], -1)


def _channels(image: Tensor) -> int:
    return _known(image.shape[1])


def _known(dim: Dim) -> int:
    return int(str(dim))


def _shared(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Something that is the same for the whole batch, computed for each row of it."""
    if len(x.shape) != 3:
        return x
    one = ops.expand(ops.reduce(x, (0,), how="mean", keep=True), *x.shape)
    one = pick(draw, (_norm, _linear, _activation, _movement))(draw, builder, one)
    C = _width(x)
    k, v = (ops.linear(one, _weight(builder, C, _width(one), dtype=x.dtype)) for _ in range(2))
    if len(k.shape) != 3:
        return ops.sin(one)
    y = ops.attention(x, k, v, heads=1, scale=0.5)
    if flag(draw):
        images = y.reshape(-1, 1, 1, C), ops.reduce(y, (0, 1), how="max").reshape(1, 1, 1, C)
        weight = _weight(builder, C, C, 1, 1, dtype=x.dtype)
        many, few = (ops.conv2d(ops.transpose(z, 0, 3, 1, 2), weight) for z in images)
        y = ops.transpose(few + many, 0, 2, 3, 1).reshape(*x.shape)
    return y + ops.sin(v) if flag(draw) else ops.where(x < 0.5, v, y)


STEPS: tuple[Step, ...] = (
    _cross_attention,
    _upscaled,
    _shared,
    _through_the_middle,
    _enlarged,
    _pointwise,
    _activation, _linear, _projections, _norm, _softmax, _arithmetic, _constants, _movement, _cut,
    _grow, _compare, _reduce, _best, _twice, _attention, _narrow_value, _residual,
)  # fmt: skip


# What a pass looks for that few graphs have.
FOR_PASS: dict[str, tuple[Step, ...]] = {
    "absorb_key_projection": (_cross_attention,),
    "absorb_key_rotation": (rotated_memory,),
    "absorb_query_projection": (_cross_attention,),
    "absorb_scale": (_residual,),
    "absorb_value_projection": (_narrow_value,),
    "attention_to_flash": (many_tokens,),
    "conv_transpose_to_linear": (_upscaled,),
    "fold_batch_norm": (normed_convolution,),
    "fuse_attention": (_attention,),
    "fuse_linear_activation": (_linear,),
    "merge_depthwise": (summed_branches,),
    "merge_linears": (_through_the_middle,),
    "merge_projections": (_projections,),
    "pixels_to_channels": (_enlarged,),
    "pointwise_to_linear": (_pointwise,),
    "project_sums": (_residual,),
    "sink_expand": (_shared, _cross_attention),
    "tile_sums": (_shared,),
}


@st.composite
def graphs(
    draw: Draw, *, dtype: DType = "f32", steps: int = 6, least: int = 1, step: str = ""
) -> Graph:
    """A graph of one or two inputs of [B, T, C], often with symbols, and one to three outputs.

    With the name of a pass as `step`, about half of it is what that pass looks for.
    """
    choice = STEPS + FOR_PASS.get(step, ()) * len(STEPS)
    builder = Builder(pick(draw, ("net", "a.b", "x-1")))
    first = pick(draw, (f"{dtype}[B,M,8]", f"{dtype}[2,M,8]", f"{dtype}[2,3,8]", f"{dtype}[B,5,4]"))
    x = builder.input("x", first)
    made = [x]
    if flag(draw):
        y = builder.input("side.input", first)
        made.append(ops.sin(x + y))
    for _ in range(number(draw, least, steps)):
        source = made[-1] if number(draw, 0, 2) else pick(draw, made)
        if number(draw, 0, 5) == 5:
            with builder.exact():
                made.append(pick(draw, choice)(draw, builder, source))
        else:
            made.append(pick(draw, choice)(draw, builder, source))
    for i, tensor in enumerate(made[:-1]):
        if flag(draw):
            builder.mark(f"step.{i}", tensor)
    outputs = {"y": made[-1]}
    if flag(draw):
        outputs["middle"] = made[number(draw, 0, len(made) - 1)]
    if flag(draw):
        outputs["large"] = builder.constant(np.arange(20), dtype)
    return builder.finish(outputs)


def arrays_for(
    graph: Graph, sizes: Mapping[str, int], seed: int = 0
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Random inputs, with each symbol of the length `sizes` gives it, and random weights."""
    rng, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    inputs = {v.name: _array(rng, v.type, sizes) for v in graph.inputs}
    return inputs, {v.name: _array(other, v.type, {}) / 2 for v in graph.params}


def _array(rng: np.random.Generator, type: TensorType, sizes: Mapping[str, int]) -> Array:
    shape = [evaluate(dim, sizes) for dim in type.shape]
    if type.dtype in INTEGERS or type.dtype == "bool":
        return rng.integers(0, 2, shape).astype(numpy_dtype(type.dtype))
    return rng.standard_normal(shape).astype(numpy_dtype(type.dtype))
