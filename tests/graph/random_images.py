"""Random small graphs of images, of the kind an engine's own passes look for.

Convolutions, blocks of norms and linear layers over channels-last maps, residual sums, resizes,
attention with masks, rotary encodings, position tables made of weights. Every step reads an image
[B, C, H, W] and makes another of the same height and width.
"""

from collections.abc import Callable

from hypothesis import strategies as st

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor, TensorType
from samgraph.graph.types import DType
from tests.ops.drawing import Draw, flag, number, pick

Step = Callable[[Draw, Builder, Tensor], Tensor]


def _weight(builder: Builder, *shape: int, like: Tensor) -> Tensor:
    return builder.param(f"w{len(builder._params)}", TensorType(shape, like.dtype))


def _channels(x: Tensor) -> int:
    return x.type.length(1)


def _last(x: Tensor) -> Tensor:
    return ops.transpose(x, 0, 2, 3, 1)


def _second(x: Tensor) -> Tensor:
    return ops.transpose(x, 0, 3, 1, 2)


def _tokens(x: Tensor) -> Tensor:
    B, C, H, W = x.shape
    return _last(x).reshape(B, H * W, C)


def _image(tokens: Tensor, like: Tensor) -> Tensor:
    B, _, H, W = like.shape
    return _second(tokens.reshape(B, H, W, tokens.shape[-1]))


def _convolution(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    C, side = _channels(x), pick(draw, (1, 3))
    out, groups = pick(draw, ((4, 1), (8, 1), (12, 1), (C, C)))
    weight = _weight(builder, out, C // groups, side, side, like=x)
    bias = _weight(builder, out, like=x) if flag(draw) else None
    y = ops.conv2d(x, weight, bias, padding=(side // 2, side // 2), groups=groups)
    return y if flag(draw) else ops.sin(y)


def _norm(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Of a channels-last map or of tokens."""
    scale, shift = (_weight(builder, x.type.length(-1), like=x) for _ in range(2))
    return ops.layer_norm(x, scale, shift, eps=pick(draw, (1e-2, 1e-3)))


def _block(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Norm, linear layer and sum, over a map or tokens; what is normed may be read twice."""
    C, B = _channels(x), x.shape[0]
    start = _tokens(x) if flag(draw) else _last(x)
    normal = _norm(draw, builder, start)
    moved = normal
    if len(start.shape) == 4 and flag(draw):
        moved = ops.transpose(normal, 0, 2, 1, 3) if flag(draw) else normal.reshape(B, -1, C)
    bias = _weight(builder, C, like=x) if flag(draw) else None
    y = ops.linear(moved, _weight(builder, C, C, like=x), bias)
    y = ops.gelu(y) if flag(draw) else y
    if len(moved.shape) == len(start.shape) and moved is not normal:
        y = ops.transpose(y, 0, 2, 1, 3)
    y = start + y.reshape(*start.shape)
    if number(draw, 0, 3) == 0:
        y = y + normal
    return ops.sin(_second(y) if len(start.shape) == 4 else _image(y, x))


def _narrow_norm(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """A norm over the few channels of a convolution, of one pixel or of several side by side."""
    C, pixels, width = _channels(x), pick(draw, (1, 2)), pick(draw, (4, 8))
    weight = _weight(builder, pixels * width, C, 1, 1, like=x)
    bias = _weight(builder, pixels * width, like=x) if flag(draw) else None
    y = _last(ops.conv2d(x, weight, bias))
    apart = y.reshape(*y.shape[:3], pixels, width) if pixels > 1 else y
    return _second(_norm(draw, builder, apart).reshape(*y.shape))


def _norm_2d(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    scale, shift = (_weight(builder, _channels(x), like=x) for _ in range(2))
    return ops.gelu(ops.layer_norm_2d(x, scale, shift, eps=1e-2))


def _resized(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    """Another size, and back."""
    H, W = x.type.length(2), x.type.length(3)
    size = pick(draw, ((2 * H, 2 * W), (H // 2, W // 2), (3 * H, 2 * W)))
    how, antialias = pick(draw, (("bilinear", False), ("bilinear", True), ("bicubic", True)))
    return ops.resize(ops.resize(x, size, how=how, antialias=antialias), (H, W), how="bilinear")


def _attention(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Over the pixels, with a mask that is given, computed or fixed."""
    tokens, heads = _tokens(x), pick(draw, (1, 2))
    T = tokens.type.length(1)
    rows = ops.reduce(tokens, (2,), how="mean").reshape(-1, 1, 1, T)
    mask = pick(draw, (rows, _weight(builder, 1, T, like=x), ops.sin(_weight(builder, T, like=x))))
    return _image(ops.attention(tokens, tokens, tokens, mask, heads=heads, scale=0.5), x)


def _rotary(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Rotary positions, of a linear layer's result or of what it reads; the last token left out."""
    H, W, C = x.type.length(2), x.type.length(3), _channels(x)
    tokens = _tokens(x)
    if flag(draw):
        tokens = ops.linear(tokens, _weight(builder, C, C, like=x))
    if flag(draw):
        longer = ops.concat([tokens, tokens[:, :1]], axis=1)
        y = ops.axial_rope(longer, grid=(H, W), theta=100.0, heads=1, unrotated=1)
        return _image(y[:, : H * W], x)
    return _image(ops.axial_rope(tokens, grid=(H, W), theta=100.0, heads=1), x)


def _position(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """A table made of weights alone, added to a map before a linear layer."""
    C, H, W = _channels(x), x.type.length(2), x.type.length(3)
    table = ops.sin(_weight(builder, 1, H, W, C, like=x))
    if flag(draw):
        table = ops.linear(_norm(draw, builder, table), _weight(builder, C, C, like=x))
    return ops.sin(_second(ops.linear(_last(x) + table, _weight(builder, C, C, like=x))))


def _column(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """A depthwise convolution in steps so wide that one column is left."""
    C, W = _channels(x), x.type.length(3)
    weight = _weight(builder, C, 1, 1, pick(draw, (3, W)), like=x)
    return x + ops.sin(ops.conv2d(x, weight, stride=(1, W), groups=C))


def _sum(draw: Draw, _: Builder, x: Tensor) -> Tensor:
    return x + ops.sin(x) if flag(draw) else ops.relu(x) + x


STEPS: tuple[Step, ...] = (
    _convolution, _block, _narrow_norm, _norm_2d, _resized, _attention, _rotary, _position, _column,
    _sum,
)  # fmt: skip


@st.composite
def image_graphs(draw: Draw, *, dtype: DType = "f64", steps: int = 6, least: int = 3) -> Graph:
    """A graph of one or two feature maps, with a symbolic batch or a known one."""
    builder = Builder("images")
    height, width = pick(draw, ((16, 16), (18, 16)))  # many positions, as passes want them
    batch = pick(draw, ("B", "1", "2"))
    x = builder.input("x", f"{dtype}[{batch},8,{height},{width}]")
    made = [x]
    if flag(draw):
        made.append(x + builder.input("skip", x.type))
    for _ in range(number(draw, least, steps)):
        source = made[-1] if number(draw, 0, 2) else pick(draw, made)
        if number(draw, 0, 5) == 5:
            with builder.exact():
                made.append(pick(draw, STEPS)(draw, builder, source))
        else:
            made.append(pick(draw, STEPS)(draw, builder, source))
    outputs = {"y": made[-1]}
    if flag(draw):
        outputs["middle"] = made[number(draw, 0, len(made) - 1)]
    if flag(draw):
        outputs["last"] = _last(made[-1])
    return builder.finish(outputs)
