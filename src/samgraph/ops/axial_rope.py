"""axial_rope: rotate adjacent channel pairs of each token by angles of its position in a grid.

    (a, b) -> (a cos t - b sin t, a sin t + b cos t)

`x` is [..., T, heads*D] with T = frames * h * w + unrotated. Token n of a frame is at column
``n % w`` and row ``n // w``. In each head the first D/2 channels rotate with the column, the last
D/2 with the row; pair i of a half by ``position * theta ** (-4 i / D)``. The grid repeats for
every frame (tiled, not interleaved); the last `unrotated` tokens are left as they are.
"""

from functools import lru_cache

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim, divide
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen

Pair = tuple[int, int]


def axial_rope(
    x: Tensor, *, grid: Pair, theta: float, heads: int = 1, unrotated: Dim = 0
) -> Tensor:
    """Rotate channel pairs by their token's position in `grid` (height, width)."""
    return emit("axial_rope", x, grid=grid, theta=theta, heads=heads, unrotated=unrotated)


def infer(x: TensorType, *, grid: Pair, theta: float, heads: int, unrotated: Dim) -> TensorType:
    """The type does not change."""
    need_float("axial_rope", x)
    expect(x.rank >= 2, "axial_rope", "needs tokens and channels", got=x, want="[..., T, C]")
    ok = heads >= 1 and divide(x.shape[-1], 4 * heads) is not None
    expect(ok, "axial_rope", "channels do not fit", got=x, want=f"a multiple of {4 * heads}")
    expect(min(grid) >= 1 and theta > 0, "axial_rope", "bad grid or theta", got=grid, want="> 0")
    rotated = x.shape[-2] - unrotated
    frames = divide(rotated, grid[0] * grid[1])
    ok = frames is not None and not (isinstance(frames, int) and frames < 0)
    want = f"{grid[0] * grid[1]}*F + {unrotated} tokens"
    expect(ok, "axial_rope", "tokens are not whole frames", got=x, want=want)
    return x


def reference(x: Array, *, grid: Pair, theta: float, heads: int, unrotated: int) -> Array:
    """Rotate every frame by the same table."""
    cos, sin = rotation_tables(grid, x.shape[-1] // heads, theta)
    rotated = x.shape[-2] - unrotated
    frames = rotated // (grid[0] * grid[1])
    wide = widen(x)
    size = (frames, grid[0] * grid[1], heads, x.shape[-1] // heads // 2, 2)
    pairs = wide[..., :rotated, :].reshape(*x.shape[:-2], *size)
    a, b = pairs[..., 0], pairs[..., 1]
    c, s = (table[:, None, :].astype(wide.dtype) for table in (cos, sin))
    y = np.stack([a * c - b * s, a * s + b * c], -1).reshape(*x.shape[:-2], rotated, x.shape[-1])
    return np.concatenate([y, wide[..., rotated:, :]], -2).astype(x.dtype)


@lru_cache(maxsize=32)
def rotation_tables(grid: Pair, width: int, theta: float) -> tuple[Array, Array]:
    """Cosine and sine of every token's angles: two [h*w, width/2] tables in float64."""
    tokens = np.arange(grid[0] * grid[1])
    speed = theta ** (-np.arange(0, width, 4) / width)
    angles = np.concatenate(
        [np.outer(tokens % grid[1], speed), np.outer(tokens // grid[1], speed)], axis=1
    )
    return np.cos(angles), np.sin(angles)


register("axial_rope", infer=infer, reference=reference, meaning=__doc__)
