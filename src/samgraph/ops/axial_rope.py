"""axial_rope: rotate adjacent channel pairs of each token by angles of its position in a grid.

    (a, b) -> (a cos t - b sin t, a sin t + b cos t)

`x` is [..., T, heads*D] with T = frames * h * w + unrotated. Token n of a frame is at column
``n % w`` and row ``n // w``. In each head the first D/2 channels rotate with the column, the last
D/2 with the row; pair i of a half by ``position * theta ** (-4 i / D)``. The grid repeats for
every frame (tiled, not interleaved); the last `unrotated` tokens are left as they are.

The first `pooled` tokens, none if it is not given, are frames of h/2 x w/2 averages of 2 x 2 cells,
which are rotated by the middle of their cells: 2 c + 1/2 for column c, and so for rows.
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
    x: Tensor, *, grid: Pair, theta: float, heads: int = 1, unrotated: Dim = 0, pooled: Dim = 0
) -> Tensor:
    """Rotate channel pairs by their token's position in `grid` (height, width)."""
    more: dict[str, Dim] = {} if pooled == 0 else {"pooled": pooled}
    return emit("axial_rope", x, grid=grid, theta=theta, heads=heads, unrotated=unrotated, **more)


def infer(
    x: TensorType, *, grid: Pair, theta: float, heads: int, unrotated: Dim, pooled: Dim = 0
) -> TensorType:
    """The type does not change."""
    need_float("axial_rope", x)
    expect(x.rank >= 2, "axial_rope", "needs tokens and channels", got=x, want="[..., T, C]")
    ok = heads >= 1 and divide(x.shape[-1], 4 * heads) is not None
    expect(ok, "axial_rope", "channels do not fit", got=x, want=f"a multiple of {4 * heads}")
    expect(min(grid) >= 1 and theta > 0, "axial_rope", "bad grid or theta", got=grid, want="> 0")
    ok = pooled == 0 or (grid[0] % 2 == 0 and grid[1] % 2 == 0)
    expect(ok, "axial_rope", "the grid cannot be pooled", got=grid, want="an even grid")
    rotated = x.shape[-2] - unrotated - pooled
    for part, area in ((rotated, grid[0] * grid[1]), (pooled, max(1, grid[0] * grid[1] // 4))):
        frames = divide(part, area)
        ok = frames is not None and not (isinstance(frames, int) and frames < 0)
        want = f"{area}*F + {x.shape[-2] - part} tokens"
        expect(ok, "axial_rope", "tokens are not whole frames", got=x, want=want)
    return x


def reference(
    x: Array, *, grid: Pair, theta: float, heads: int, unrotated: int, pooled: int = 0
) -> Array:
    """Rotate every frame by the same table."""
    wide, end = widen(x), x.shape[-2] - unrotated
    parts = [
        _rotated(wide[..., :pooled, :], half(grid), theta, heads, 2),
        _rotated(wide[..., pooled:end, :], grid, theta, heads, 1),
    ]
    return np.concatenate([*parts, wide[..., end:, :]], -2).astype(x.dtype)


def _rotated(x: Array, grid: Pair, theta: float, heads: int, stride: int) -> Array:
    """Whole frames of a grid, [..., F*h*w, C]."""
    width, area = x.shape[-1] // heads, grid[0] * grid[1]
    if not x.shape[-2]:
        return x
    cos, sin = rotation_tables(grid, width, theta, stride)
    pairs = x.reshape(*x.shape[:-2], x.shape[-2] // area, area, heads, width // 2, 2)
    a, b = pairs[..., 0], pairs[..., 1]
    c, s = (table[:, None, :].astype(x.dtype) for table in (cos, sin))
    return np.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)


def half(grid: Pair) -> Pair:
    """The grid of averages of 2 x 2 cells."""
    return grid[0] // 2, grid[1] // 2


@lru_cache(maxsize=32)
def rotation_tables(grid: Pair, width: int, theta: float, stride: int = 1) -> tuple[Array, Array]:
    """Cosine and sine of every token's angles: two [h*w, width/2] tables in float64.

    A token stands for `stride` x `stride` cells, and is at their middle.
    """
    tokens = np.arange(grid[0] * grid[1])
    speed = theta ** (-np.arange(0, width, 4) / width)
    columns, rows = ((n + 0.5) * stride - 0.5 for n in (tokens % grid[1], tokens // grid[1]))
    angles = np.concatenate([np.outer(columns, speed), np.outer(rows, speed)], axis=1)
    return np.cos(angles), np.sin(angles)


register("axial_rope", infer=infer, reference=reference, meaning=__doc__)
