"""slice: along every axis the elements from `starts` up to, not including, `ends`, by `steps`."""

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim, floor_divide
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType

Dims = tuple[Dim, ...]


def slice_along(x: Tensor, axis: int, start: Dim, end: Dim) -> Tensor:
    """The elements from `start` to `end` along one axis, all along the others."""
    axis %= len(x.shape)
    starts = tuple(start if i == axis else 0 for i in range(len(x.shape)))
    ends = tuple(end if i == axis else dim for i, dim in enumerate(x.shape))
    return emit("slice", x, starts=starts, ends=ends, steps=(1,) * len(x.shape))


def infer(x: TensorType, *, starts: Dims, ends: Dims, steps: tuple[int, ...]) -> TensorType:
    """One start, end and positive step for each axis, inside the tensor."""
    ok = len(starts) == len(ends) == len(steps) == x.rank
    want = f"{x.rank} of each"
    expect(ok, "slice", "one start, end and step per axis", got=f"{starts}, {ends}", want=want)
    expect(all(s >= 1 for s in steps), "slice", "steps must be positive", got=steps, want=">= 1")
    shape: list[Dim] = []
    for start, end, step, length in zip(starts, ends, steps, x.shape, strict=True):
        numbers = [n for n in (0, start, end, length) if isinstance(n, int)]
        inside = numbers == sorted(numbers)
        got = f"{start}:{end} of {length}"
        expect(inside, "slice", "outside the tensor", got=got, want="0 <= start <= end <= length")
        shape.append(floor_divide(end - start + (step - 1), step))
    return x.reshaped(shape)


def reference(
    x: Array, *, starts: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...]
) -> Array:
    """Numpy's own."""
    parts = tuple(slice(*bounds) for bounds in zip(starts, ends, steps, strict=True))
    return x[parts]


register("slice", infer=infer, reference=reference, meaning=__doc__)
