"""reshape: the same elements, row by row, in another shape. One length may be -1: the rest."""

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim, divide, product
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType


def reshape(x: Tensor, *shape: Dim) -> Tensor:
    """The same elements in another shape."""
    return emit("reshape", x, shape=tuple(shape))


def infer(x: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
    """As many elements as before."""
    unknown = [i for i, dim in enumerate(shape) if dim == -1]
    expect(len(unknown) <= 1, "reshape", "-1 may stand once", got=shape, want="one -1")
    total = product(x.shape)
    if unknown:
        known = product(tuple(dim for dim in shape if dim != -1))
        rest = divide(total, known)
        expect(rest is not None, "reshape", "-1 has no whole value", got=f"{x} to {shape}", want=x)
        shape = tuple(rest if dim == -1 and rest is not None else dim for dim in shape)
    same = product(shape) == total
    positive = all(not isinstance(dim, int) or dim >= 0 for dim in shape)
    want = f"{total} elements"
    expect(same and positive, "reshape", "elements differ", got=f"{x} to {shape}", want=want)
    return x.reshaped(shape)


def reference(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Numpy's own."""
    return x.reshape(shape)


register("reshape", infer=infer, reference=reference, meaning=__doc__)
