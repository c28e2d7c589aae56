"""Ops that only native kernels have; passes put them into a graph.

    flash_attention      what `attention` means
    rope_key_attention   attention(q, axial_rope(linear(k, weight, bias)), v) with one head

For `rope_key_attention` q is [N, T, D], k [N, S, C] with C < D, v [N, S, E], weight [D, C], bias
[D]; S is `pooled` tokens, whole frames of the grid, then `unrotated` tokens (`axial_rope`). Keys
of D channels are never made. An optional mask [S] is added to the scores of every query.
"""

from samgraph.graph.dims import Dim, product
from samgraph.graph.graph import Node
from samgraph.graph.registry import ENGINE_OPS, expect, find_op, register
from samgraph.graph.types import Array, TensorType

Pair = tuple[int, int]
_ATTENTION, _LINEAR, _ROPE = (find_op(name) for name in ("attention", "linear", "axial_rope"))


def infer(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    weight: TensorType,
    bias: TensorType,
    mask: TensorType | None = None,
    *,
    grid: Pair,
    theta: float,
    unrotated: Dim,
    scale: float,
    pooled: Dim = 0,
) -> TensorType:
    """The queries' positions with the values' width."""
    expect(q.rank == 3, "rope_key_attention", "needs a batch", got=q, want="[N, T, D]")
    keys = _LINEAR.infer(k, weight, bias)
    rope = {"grid": grid, "theta": theta, "heads": 1, "unrotated": unrotated, "pooled": pooled}
    keys = _ROPE.infer(keys, **rope)
    ok = mask is None or mask.shape == k.shape[-2:-1]
    expect(ok, "rope_key_attention", "the mask does not fit the keys", got=mask, want="[S]")
    return _ATTENTION.infer(q, keys, v, mask, heads=1, scale=scale)


def reference(
    q: Array,
    k: Array,
    v: Array,
    weight: Array,
    bias: Array,
    mask: Array | None = None,
    *,
    grid: Pair,
    theta: float,
    unrotated: int,
    scale: float,
    pooled: int = 0,
) -> Array:
    """Keys as they are defined, then attention."""
    keys = _LINEAR.reference(k, weight, bias)
    rope = {"grid": grid, "theta": theta, "heads": 1, "unrotated": unrotated, "pooled": pooled}
    return _ATTENTION.reference(q, _ROPE.reference(keys, **rope), v, mask, heads=1, scale=scale)


def work(result: TensorType, q: TensorType, k: TensorType, *_: TensorType, **__: object) -> Dim:
    """A multiply-add per channel of keys and values for every query and key."""
    return product(q.shape[:-1]) * k.shape[-2] * (k.shape[-1] + result.shape[-1])


register(
    "rope_key_attention",
    infer=infer,
    reference=reference,
    work=work,
    meaning=__doc__,
    table=ENGINE_OPS,
)
register(
    "flash_attention",
    infer=_ATTENTION.infer,
    reference=_ATTENTION.reference,
    work=_ATTENTION.work,
    meaning=__doc__,
    table=ENGINE_OPS,
)
ROUNDED_OPS = frozenset(("rope_key_attention",))  # whose kernels can round operands
NATIVE_OPS = frozenset(("flash_attention", "rope_key_attention"))


def is_rounded(node: Node, precision: str) -> bool:
    """Whether a kernel rounds the operands of a node's products."""
    return precision == "bf16" and node.op in ROUNDED_OPS and not node.exact
