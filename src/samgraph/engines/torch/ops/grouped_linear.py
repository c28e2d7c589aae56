"""grouped_linear: a separate linear layer for each of several tokens.

    y[:, g] = activation(x[:, g] @ weight[g].T + bias[g])

x [N, G, in], weight [G, out, in], bias [G, out] -> [N, G, out].
"""

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, widen


def infer(
    x: TensorType, weight: TensorType, bias: TensorType, *, activation: str = "none"
) -> TensorType:
    """The last axis of `x` becomes the number of outputs."""
    need_float("grouped_linear", x, weight, bias)
    shapes = f"x: {x}, weight: {weight}, bias: {bias}"
    ok = x.rank == weight.rank == 3 and x.shape[1:] == (weight.shape[0], weight.shape[2])
    expect(ok, "grouped_linear", "x and weight do not fit", got=shapes, want="[N, G, in]")
    want = weight.reshaped(weight.shape[:2])
    expect(bias == want, "grouped_linear", "one bias per output", got=shapes, want=want)
    ok = activation in ("none", "relu")
    expect(ok, "grouped_linear", "no such activation", got=activation, want="none, relu")
    return x.reshaped((*x.shape[:2], weight.shape[1]))


def reference(x: Array, weight: Array, bias: Array, *, activation: str = "none") -> Array:
    """All groups at once."""
    y = (widen(x)[:, :, None] @ widen(weight).transpose(0, 2, 1))[:, :, 0] + widen(bias)
    if activation != "none":
        y = OPS[activation].reference(y)
    result: Array = y.astype(x.dtype)
    return result


def work(result: TensorType, x: TensorType, *_: TensorType, **__: object) -> Dim:
    """One multiply-add for each output and input channel."""
    return product(result.shape) * x.shape[-1]


register(
    "grouped_linear",
    infer=infer,
    reference=reference,
    work=work,
    meaning=__doc__,
    table=ENGINE_OPS,
)
