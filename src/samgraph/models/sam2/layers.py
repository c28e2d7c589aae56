"""The layers of the model, whose weights come from a scope.

Shapes: ... any leading axes, C channels, T tokens, N images, H W grid.
"""

from collections.abc import Sequence

from samgraph import ops
from samgraph.graph import Scope, Tensor


def linear(at: Scope, x: Tensor, out: int, *, bias: bool = True) -> Tensor:
    """A linear layer: [..., C] -> [..., out]."""
    weight = at.weight("weight", out, width(x))
    return ops.linear(x, weight, at.weight("bias", out) if bias else None)


def layer_norm(at: Scope, x: Tensor, *, eps: float) -> Tensor:
    """Normalisation over the last axis: [..., C] -> [..., C]."""
    C = width(x)
    return ops.layer_norm(x, at.weight("weight", C), at.weight("bias", C), eps=eps)


def layer_norm_2d(at: Scope, x: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Normalisation over channels at each pixel: [N, C, H, W] -> [N, C, H, W]."""
    C = width(x, axis=1)
    return ops.layer_norm_2d(x, at.weight("weight", C), at.weight("bias", C), eps=eps)


def conv2d(
    at: Scope,
    x: Tensor,
    out: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    bias: bool = True,
) -> Tensor:
    """A square convolution: [N, C, H, W] -> [N, out, H', W']."""
    weight = at.weight("weight", out, width(x, axis=1) // groups, kernel, kernel)
    shift = at.weight("bias", out) if bias else None
    steps = {"stride": (stride, stride), "padding": (padding, padding)}
    return ops.conv2d(x, weight, shift, **steps, groups=groups)


def conv_transpose2d(at: Scope, x: Tensor, out: int, kernel: int) -> Tensor:
    """A transposed convolution, its stride its kernel k: [N, C, H, W] -> [N, out, k*H, k*W]."""
    weight = at.weight("weight", width(x, axis=1), out, kernel, kernel)
    return ops.conv_transpose2d(x, weight, at.weight("bias", out), stride=(kernel, kernel))


def mlp(at: Scope, x: Tensor, widths: Sequence[int], *, gelu: bool = False) -> Tensor:
    """Linear layers with an activation between: [..., C] -> [..., widths[-1]]."""
    for i, out in enumerate(widths):
        x = linear(at / "layers" / i, x, out)
        if i < len(widths) - 1:
            x = ops.gelu(x) if gelu else ops.relu(x)
    return x


def to_tokens(x: Tensor) -> Tensor:
    """An image as tokens, row by row: [N, C, H, W] -> [N, H*W, C]."""
    N, C, H, W = x.shape
    return x.transpose(0, 2, 3, 1).reshape(N, H * W, C)


def to_image(x: Tensor, H: int, W: int) -> Tensor:
    """Tokens as an image: [N, H*W, C] -> [N, C, H, W]."""
    N, _, C = x.shape
    return x.reshape(N, H, W, C).transpose(0, 3, 1, 2)


def width(x: Tensor, axis: int = -1) -> int:
    """The number of channels, which is never symbolic."""
    return x.type.length(axis)
