"""Python indexing on traced tensors: ints, slices with positive steps, None and `...`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samgraph.errors import ShapeError
from samgraph.graph.dims import Dim, Expr

if TYPE_CHECKING:
    from samgraph.graph.builder import Index, Tensor


def take(x: Tensor, index: tuple[Index, ...]) -> Tensor:
    """``x[index]``, as one slice and, where axes are added or removed, one reshape."""
    from samgraph.graph.builder import emit

    parts = _expand(x, index)
    starts: list[Dim] = []
    ends: list[Dim] = []
    steps: list[int] = []
    shape: list[Dim | None] = []  # None: the length that the slice gives
    axis = 0
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        start, end, step = _bounds(part, x.shape[axis])
        starts.append(start)
        ends.append(end)
        steps.append(step)
        if isinstance(part, slice):
            shape.append(None)
        axis += 1
    sliced = x
    if (tuple(starts), tuple(ends), set(steps)) != ((0,) * axis, x.shape, {1}):
        sliced = emit("slice", x, starts=tuple(starts), ends=tuple(ends), steps=tuple(steps))
    whole = [part for part in parts if part is not None]
    kept = (n for n, part in zip(sliced.shape, whole, strict=True) if isinstance(part, slice))
    final = tuple(next(kept) if dim is None else dim for dim in shape)
    return sliced if final == sliced.shape else emit("reshape", sliced, shape=final)


def _expand(x: Tensor, index: tuple[Index, ...]) -> list[int | slice | None]:
    """The index with `...` and missing trailing axes replaced by full slices."""
    used = sum(part is not None and part is not Ellipsis for part in index)
    missing = len(x.shape) - used
    dots = sum(part is Ellipsis for part in index)
    if missing < 0 or dots > 1:
        raise ShapeError("too many indices", got=f"{len(index)} for {x.type}")
    full: list[int | slice | None] = []
    for part in index if dots else (*index, Ellipsis):
        if part is Ellipsis:
            full.extend([slice(None)] * missing)
        elif part is None or (isinstance(part, int | slice) and not isinstance(part, bool)):
            full.append(part)
        else:
            raise ShapeError(
                "only ints, slices, None and `...` index a tensor", got=type(part).__name__
            )
    return full


def _bounds(part: int | slice, length: Dim) -> tuple[Dim, Dim, int]:
    """Start, end and step, counted from the front."""
    if isinstance(part, int):
        start = part if part >= 0 else length + part
        if isinstance(length, int) and isinstance(start, int) and not 0 <= start < length:
            raise ShapeError(f"index {part} is outside an axis of length {length}")
        return start, start + 1, 1
    step = 1 if part.step is None else part.step
    if not isinstance(step, int) or step < 1:
        raise ShapeError("a slice needs a positive step", got=step)
    start = _edge(0 if part.start is None else part.start, length)
    end = _edge(length if part.stop is None else part.stop, length)
    if isinstance(start, int) and isinstance(end, int):
        end = max(start, end)  # empty, as in numpy
    return start, end, step


def _edge(edge: Dim, length: Dim) -> Dim:
    if isinstance(edge, Expr):
        return edge
    if edge < 0:
        edge_from_front = length + edge
        return max(edge_from_front, 0) if isinstance(edge_from_front, int) else edge_from_front
    return min(edge, length) if isinstance(length, int) else edge
