"""linear: ``y = x @ weight.T + bias`` over the last axis, then an optional activation.

The weight is stored as (out, in), as in a checkpoint. The bias may be left out. `activation`
is none, relu, gelu or sigmoid; `fuse_linear_activation` puts it here.
"""

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import OPS, expect, register
from samgraph.graph.types import Array, TensorType
from samgraph.ops.rules import need_float, need_rank, widen

ACTIVATIONS = ("none", "relu", "gelu", "sigmoid")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A learned affine map over the last axis: [..., in] -> [..., out]."""
    return emit("linear", x, weight, bias)


def infer(
    x: TensorType, weight: TensorType, bias: TensorType | None = None, *, activation: str = "none"
) -> TensorType:
    """The last axis of `x` is replaced by the number of rows of `weight`."""
    need_float("linear", x, weight, *([bias] if bias else []))
    need_rank("linear", "weight", weight, 2)
    expect(x.rank >= 1, "linear", "`x` needs an axis", got=x, want="[..., in]")
    out, width = weight.shape
    expect(
        x.shape[-1] == width,
        "linear",
        "the last axis of `x` must match the columns of `weight`",
        got=f"x: {x}, weight: {weight}",
        want=f"x: [..., {width}]",
    )
    if bias:
        expect(bias.shape == (out,), "linear", "one bias per output", got=bias, want=f"[{out}]")
    known = activation in ACTIVATIONS
    expect(known, "linear", "no such activation", got=activation, want=", ".join(ACTIVATIONS))
    return x.reshaped((*x.shape[:-1], out))


def reference(
    x: Array, weight: Array, bias: Array | None = None, *, activation: str = "none"
) -> Array:
    """One matrix product, one addition, the activation's own reference."""
    flat: Array = widen(x).reshape(-1, x.shape[-1]) @ widen(weight).T
    y = flat.reshape(*x.shape[:-1], len(weight))
    if bias is not None:
        y = y + widen(bias)
    if activation != "none":
        y = OPS[activation].reference(y)
    return y.astype(x.dtype)


def work(result: TensorType, x: TensorType, *_: TensorType, **__: object) -> Dim:
    """One multiply-add for each output and input channel."""
    return product(result.shape) * x.shape[-1]


register("linear", infer=infer, reference=reference, work=work, meaning=__doc__)
