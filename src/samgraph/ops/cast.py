"""cast: the elements as another dtype. Floats become ints toward zero; nonzero is true."""

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import expect, register
from samgraph.graph.types import DTYPES, Array, DType, TensorType, numpy_dtype


def cast(x: Tensor, dtype: DType) -> Tensor:
    """The elements as another dtype."""
    return x if x.dtype == dtype else emit("cast", x, dtype=dtype)


def infer(x: TensorType, *, dtype: DType) -> TensorType:
    """The same shape."""
    expect(dtype in DTYPES, "cast", "no such dtype", got=dtype, want=", ".join(DTYPES))
    return x.as_dtype(dtype)


def reference(x: Array, *, dtype: DType) -> Array:
    """Numpy's own."""
    return x.astype(numpy_dtype(dtype))


register("cast", infer=infer, reference=reference, meaning=__doc__)
