"""Steps of random graphs for the passes over convolutions."""

from samgraph import ops
from samgraph.graph import Builder, Tensor, TensorType
from tests.ops.drawing import Draw, flag, pick


def _param(builder: Builder, *shape: int, like: Tensor) -> Tensor:
    return builder.param(f"w{len(builder._params)}", TensorType(shape, like.dtype))


def normed_convolution(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """A convolution, then a scale, a shift or both per channel, made of params in some way."""
    image = _image(x)
    out, kernel = pick(draw, (2, 3)), pick(draw, (1, 3))
    weight = _param(builder, out, _channels(image), kernel, kernel, like=x)
    bias = _param(builder, out, like=x) if flag(draw) else None
    y = ops.conv2d(image, weight, bias, padding=(kernel // 2, kernel // 2))
    scale, shift = (_param(builder, out, 1, 1, like=x) for _ in range(2))
    if flag(draw):
        y = y * ops.sin(scale) if flag(draw) else scale[None] * y
    if flag(draw):
        y = y + (shift - scale) if flag(draw) else shift + y
    return ops.sin(ops.reduce(y, (1,), how="max").reshape(*x.shape))


def summed_branches(draw: Draw, builder: Builder, x: Tensor) -> Tensor:
    """Depthwise convolutions of one map, summed, perhaps with the map itself."""
    image = _image(x)
    image = ops.concat([image, ops.cos(image)], axis=1)
    C = _channels(image)
    total = None
    for kernel in pick(draw, (((3, 3), (1, 1)), ((1, 1), (3, 1)), ((3, 1), (1, 3)), ((3, 3),))):
        weight = _param(builder, C, 1, *kernel, like=x)
        bias = _param(builder, C, like=x) if flag(draw) else None
        padding = (kernel[0] // 2, kernel[1] // 2)
        y = ops.conv2d(image, weight, bias, padding=padding, groups=C)
        total = y if total is None else total + y
    if total is None or flag(draw):
        total = image if total is None else total + image
    return ops.sin(ops.reduce(total, (1,), how="max").reshape(*x.shape))


def _image(x: Tensor) -> Tensor:
    """Values in rows of the last axis, as an image of one channel."""
    C = x.type.length(-1)
    height = 2 if C % 2 == 0 else 1
    return x.reshape(-1, 1, height, C // height)


def _channels(image: Tensor) -> int:
    return image.type.length(1)
