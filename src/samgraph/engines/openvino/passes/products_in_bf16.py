"""products_in_bf16: in bf16, large products have operands of bf16; all else stays in float32.

    %0 = linear(%x, %w, %b)    =>    %0 = cast(%x, dtype=bf16)
    return y=%0                      %1 = cast(%w, dtype=bf16)
                                     %2 = linear(%0, %1)
                                     %3 = cast(%2, dtype=f32)
                                     %4 = add(%3, %b)
                                     return y=%4

OpenVINO sums such products in float32 and rounds the result once (4096 x 768 x 3072: 0.0026 off, in
half the time). The residual stream, norms, biases and activations keep their digits, as with
torch's autocast: whole models in bf16 lose masks. Linear layers, convolutions, products of two
computed matrices, attention without a mask (its scores are rounded as well); not nodes that are
`exact`, nor products with a constant, which are resizes. A cast takes time: only where an element
that is read or written takes part in many multiply-adds. Weights are cast once, when they are
bound. At 1024 pixels (tiny, AVX-512-BF16) the image encoder takes 1.75 s of a core instead of 3.1.
"""

import math
from collections.abc import Callable

import numpy as np

from samgraph.graph.dims import evaluate, product
from samgraph.graph.graph import Graph, Node, Value
from samgraph.graph.registry import find_op
from samgraph.graph.types import TensorType
from samgraph.passes.fold_params import foldable
from samgraph.passes.rewriter import Rewriter, rewrite

_LEAST = 1 << 20  # multiply-adds
_REUSE = 32  # multiply-adds for each element that is cast


def products_in_bf16(graph: Graph) -> Graph:
    """Rewrite each product that is large enough."""
    folding = foldable(graph)
    large = {node.result.name for node in graph if _is_product(graph, node) and _pays(node)}
    large -= folding
    if not large:
        return graph
    halves: dict[str, Value] = {}  # the casts, by what they are made of

    def make(rewriter: Rewriter, node: Node) -> Value:
        def half(value: Value) -> Value:
            if value.name not in halves:
                halves[value.name] = rewriter.emit("cast", value, dtype="bf16")
            return halves[value.name]

        return _MAKE[node.op](rewriter, node, half)

    return rewrite(graph, large, make)


def _is_product(graph: Graph, node: Node) -> bool:
    if node.op not in _MAKE or node.exact:
        return False
    if any(value.type.dtype != "f32" for value in node.inputs):
        return False
    if node.op == "conv2d":
        return node.integer("groups") == 1
    if node.op == "matmul":
        made = [graph.producers().get(value.name) for value in node.inputs]
        return not any(maker is not None and maker.op == "constant" for maker in made)
    return node.op == "linear" or len(node.inputs) == 3


def _pays(node: Node) -> bool:
    """Whether there are enough multiply-adds, with every symbol at least 1."""
    types = [value.type for value in node.inputs]
    count = find_op(node.op).work
    if count is None:
        return False
    work = count(node.result.type, *types, **node.attributes)
    at_least = dict.fromkeys(node.result.type.symbols.union(*(t.symbols for t in types)), 1)
    moved = [node.result.type, *(types if node.op == "attention" else types[:1])]
    elements = sum(math.prod(_lengths(type, at_least)) for type in moved)
    return evaluate(work, at_least) >= max(_LEAST, _REUSE * elements)


def _lengths(type: TensorType, symbols: dict[str, int]) -> list[int]:
    return [evaluate(dim, symbols) for dim in type.shape]


Half = Callable[[Value], Value]


def _linear(rewriter: Rewriter, node: Node, half: Half) -> Value:
    x, weight, *bias = (rewriter.new(value) for value in node.inputs)
    y = rewriter.emit("cast", rewriter.emit("linear", half(x), half(weight)), dtype="f32")
    if bias:
        y = rewriter.emit("add", y, bias[0])
    activation = node.text("activation", "none")
    return y if activation == "none" else rewriter.emit(activation, y)


def _conv2d(rewriter: Rewriter, node: Node, half: Half) -> Value:
    x, weight, *bias = (rewriter.new(value) for value in node.inputs)
    y = rewriter.emit("conv2d", half(x), half(weight), exact=False, **node.attributes)
    y = rewriter.emit("cast", y, dtype="f32")
    if not bias:
        return y
    shape = (product(bias[0].type.shape), 1, 1)
    return rewriter.emit("add", y, rewriter.emit("reshape", bias[0], shape=shape))


def _matmul(rewriter: Rewriter, node: Node, half: Half) -> Value:
    y = rewriter.emit("matmul", *(half(rewriter.new(value)) for value in node.inputs))
    return rewriter.emit("cast", y, dtype="f32")


def _attention(rewriter: Rewriter, node: Node, half: Half) -> Value:
    q, k, v = (rewriter.new(value) for value in node.inputs)
    scale = np.array(node.number("scale"))
    q = rewriter.emit("mul", q, rewriter.constant(scale, "f32"))  # before it is cast
    y = rewriter.emit(
        "attention", half(q), half(k), half(v), heads=node.integer("heads"), scale=1.0
    )
    return rewriter.emit("cast", y, dtype="f32")


_MAKE: dict[str, Callable[[Rewriter, Node, Half], Value]] = {
    "attention": _attention,
    "conv2d": _conv2d,
    "linear": _linear,
    "matmul": _matmul,
}
PRODUCTS = frozenset(_MAKE)
