"""fused_mlp: the feed-forward half of a transformer block.

    y = x + activation(norm(x) @ inner.T + inner_bias) @ outer.T + outer_bias

x [..., C], inner [H, C], outer [C, H]. The norm's scale and shift are in the inner weight and bias.
"""

from samgraph.graph.dims import Dim, product
from samgraph.graph.registry import ENGINE_OPS, expect, find_op, register
from samgraph.graph.types import Array, TensorType


def infer(
    x: TensorType,
    inner: TensorType,
    inner_bias: TensorType,
    outer: TensorType,
    outer_bias: TensorType,
    *,
    eps: float,
    activation: str,
) -> TensorType:
    """The type of `x`."""
    expect(eps > 0, "fused_mlp", "`eps` must be positive", got=eps, want="> 0")
    layer = find_op("fused_linear")
    hidden = layer.infer(x, inner, inner_bias, eps=eps, activation=activation)
    return layer.infer(hidden, outer, outer_bias, x)


def reference(
    x: Array,
    inner: Array,
    inner_bias: Array,
    outer: Array,
    outer_bias: Array,
    *,
    eps: float,
    activation: str,
) -> Array:
    """Two linear layers."""
    layer = find_op("fused_linear").reference
    hidden = layer(x, inner, inner_bias, eps=eps, activation=activation)
    return layer(hidden, outer, outer_bias, x)


def work(result: TensorType, x: TensorType, inner: TensorType, *_: TensorType,
         **__: object) -> Dim:  # fmt: skip
    """Two products."""
    return 2 * product(result.shape) * inner.shape[0]


register(
    "fused_mlp", infer=infer, reference=reference, work=work, meaning=__doc__, table=ENGINE_OPS
)
