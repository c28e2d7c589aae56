"""floats_in_f16: in fp16, values are of f16, but for islands of float32 where masks would suffer.

    graph f(%x: f32[N,8])                    %0 = cast(%x, dtype=f16)
    %0 = linear(%x, %w)              =>      %1 = cast(%w, dtype=f16)
    %1 = sin(%0)                             %2 = linear(%0, %1)
    return y=%1                              %3 = cast(%2, dtype=f32)
                                             %4 = sin(%3)
                                             return y=%4

Inputs and outputs keep their dtypes. In float32 stay: nodes that are `exact`; sums, angles and
exponentials; numbers beyond the range of f16 and what is computed from them, up to a function that
bounds them; and what depends on weights only, which is computed once and then cast.
"""

import numpy as np

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.fold_params import foldable
from samgraph.passes.rewriter import Rewriter

# A sum over pixels exceeds f16; an angle of a position has no digits left after its turns.
ISLANDS = frozenset(("cos", "exp", "log", "reduce", "sin", "sqrt"))
_BOUNDED = frozenset(("attention", "clip", "compare", "sigmoid", "softmax"))
_LARGEST = 6e4  # of f16 is 65504


def floats_in_f16(graph: Graph) -> Graph:
    """Rewrite every node that is no island."""
    full = foldable(graph) | _beyond(graph) | {n.result.name for n in graph if _is_island(n)}
    state = _Casts(Rewriter(graph))
    for node in graph:
        if node.result.name in full:
            state.keep(node)
        else:
            state.halve(node)
    outputs = tuple((name, state.full(value)) for name, value in graph.outputs)
    return state.rewriter.finish(outputs)


def _is_island(node: Node) -> bool:
    has_floats = any(value.type.dtype == "f32" for value in (*node.inputs, node.result))
    return node.exact or not has_floats or node.op == "constant" or node.op in ISLANDS


def _beyond(graph: Graph) -> frozenset[str]:
    """Results of nodes that read, or may give, numbers beyond the range of f16."""
    large: set[str] = set()  # values that may be so large
    found: set[str] = set()
    for node in graph:
        name = node.result.name
        if node.op == "constant":
            array = node.array()
            is_float = array.dtype == np.float32
            if is_float and np.any(np.isfinite(array) & (np.abs(array) > _LARGEST)):
                large.add(name)
        elif any(value.name in large for value in node.inputs):
            found.add(name)
            if node.op not in _BOUNDED:
                large.add(name)
    return frozenset(found)


class _Casts:
    """The new value of each old one, in float32 and in f16; casts are made once."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self._made: dict[str, Value] = {}
        self._cast: dict[tuple[str, str], Value] = {}

    def keep(self, node: Node) -> None:
        """The node as it is."""
        inputs = [self.full(value) for value in node.inputs]
        made = self.rewriter.emit(node.op, *inputs, exact=node.exact, **node.attributes)
        self._made[node.result.name] = made

    def halve(self, node: Node) -> None:
        """The node with operands and result of f16."""
        attributes = dict(node.attributes)
        if attributes.get("dtype") == "f32":
            attributes["dtype"] = "f16"
        inputs = [self.half(value) for value in node.inputs]
        self._made[node.result.name] = self.rewriter.emit(
            node.op, *inputs, exact=False, **attributes
        )

    def full(self, value: Value) -> Value:
        """The value in its own dtype."""
        made = self._made.get(value.name, value)
        return made if made.type.dtype == value.type.dtype else self._as(made, "f32")

    def half(self, value: Value) -> Value:
        """The value in f16, if it is a float."""
        made = self._made.get(value.name, value)
        return self._as(made, "f16") if made.type.dtype == "f32" else made

    def _as(self, value: Value, dtype: str) -> Value:
        key = (value.name, dtype)
        if key not in self._cast:
            self._cast[key] = self.rewriter.emit("cast", value, dtype=dtype)
        return self._cast[key]
