"""Window partition of a feature map, and its inverse.

Shapes: B images, H W grid, h w window, n windows per image.
"""

from samgraph import ops
from samgraph.graph import Dim, Tensor
from samgraph.models.sam2.layers import width


def partition(x: Tensor, h: int, w: int, *, quads: bool = False) -> Tensor:
    """Zero-pad to whole windows and partition: [B, H, W, C] -> tokens [B*n, h*w, C].

    With `quads` the four tokens of each 2 x 2 have their own axis, for pooling: [B*n, 4, h*w/4, C].
    """
    B, C = x.shape[0], width(x)
    H, W = width(x, 1), width(x, 2)
    rows, columns = -(-H // h), -(-W // w)
    if (rows * h, columns * w) != (H, W):
        x = ops.pad(x, (0, 0, 0, 0), (0, rows * h - H, columns * w - W, 0))
    n = rows * columns
    if quads:
        cut = x.reshape(B, rows, h // 2, 2, columns, w // 2, 2, C)
        return cut.transpose(0, 1, 4, 3, 6, 2, 5, 7).reshape(B * n, 4, h * w // 4, C)
    if n == 1:
        return x.reshape(B, h * w, C)
    cut = x.reshape(B, rows, h, columns, w, C).transpose(0, 1, 3, 2, 4, 5)
    return cut.reshape(B * n, h * w, C)


def unpartition(x: Tensor, h: int, w: int, B: Dim, H: int, W: int) -> Tensor:
    """The inverse, without the padding: [B*n, h*w, C] -> [B, H, W, C]."""
    C = width(x)
    if (h, w) == (H, W):
        return x.reshape(B, H, W, C)
    rows, columns = -(-H // h), -(-W // w)
    whole = x.reshape(B, rows, columns, h, w, C).transpose(0, 1, 3, 2, 4, 5)
    whole = whole.reshape(B, rows * h, columns * w, C)
    return whole if (rows * h, columns * w) == (H, W) else whole[:, :H, :W]
