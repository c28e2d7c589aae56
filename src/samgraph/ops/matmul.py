"""matmul: the matrix product over the last two axes; the axes in front broadcast."""

import numpy as np

from samgraph.graph.builder import Operand, Tensor, emit
from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import broadcast, need_float, widen


def matmul(a: Operand, b: Operand) -> Tensor:
    """The matrix product: [..., m, k] @ [..., k, n] -> [..., m, n]."""
    return emit("matmul", a, b)


def infer(a: TensorType, b: TensorType) -> TensorType:
    """The inner lengths must agree."""
    need_float("matmul", a, b)
    fits = a.rank >= 2 and b.rank >= 2 and a.shape[-1] == b.shape[-2]
    expect(
        fits,
        "matmul",
        "the inner lengths differ",
        got=f"{a} @ {b}",
        want="[..., m, k] @ [..., k, n]",
    )
    front = broadcast("matmul", a.reshaped(a.shape[:-2]), b.reshaped(b.shape[:-2]))
    return a.reshaped((*front, a.shape[-2], b.shape[-1]))


def reference(a: Array, b: Array) -> Array:
    """Numpy's own."""
    y: Array = np.matmul(widen(a), widen(b))
    return y.astype(a.dtype)


def work(result: TensorType, a: TensorType, *_: TensorType, **__: object) -> Dim:
    """One multiply-add for each output and inner index."""
    return product(result.shape) * a.shape[-1]


register("matmul", infer=infer, reference=reference, work=work, meaning=__doc__)
