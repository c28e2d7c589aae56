"""specialise: replace symbols by their values, for a graph that is often run with one size.

    %0: f32[N,P,256] = linear(%x, ...)   =>   %0: f32[1,P,256] = linear(%x, ...)      N=1

An engine knows more about a fixed size: it can plan memory and choose layouts once.
"""

from collections.abc import Mapping

from samgraph.graph.dims import Dim, Expr, Floor, Shape, floor_divide
from samgraph.graph.graph import Attribute, Graph, Node, Value
from samgraph.graph.types import TensorType
from samgraph.graph.verifier import verify


def specialise(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The same graph with the symbols in `sizes` replaced by numbers."""
    known = {name: size for name, size in sizes.items() if name in graph.symbols}
    if not known:
        return graph
    values: dict[str, Value] = {}

    def fixed(value: Value) -> Value:
        if value.name not in values:
            shape = _shape(value.type.shape, known)
            values[value.name] = Value(value.name, TensorType(shape, value.type.dtype))
        return values[value.name]

    inputs = tuple(fixed(value) for value in graph.inputs)
    nodes = tuple(
        Node(
            node.op,
            tuple(fixed(value) for value in node.inputs),
            {key: _attribute(item, known) for key, item in node.attributes.items()},
            fixed(node.result),
            node.exact,
        )
        for node in graph
    )
    outputs = tuple((name, fixed(value)) for name, value in graph.outputs)
    marks = tuple((name, fixed(value)) for name, value in graph.marks)
    special = Graph(graph.name, inputs, graph.params, nodes, outputs, marks)
    verify(special)
    return special


def _shape(shape: Shape, known: Mapping[str, int]) -> Shape:
    return tuple(_dim(dim, known) for dim in shape)


def _attribute(item: Attribute, known: Mapping[str, int]) -> Attribute:
    if isinstance(item, tuple):
        return tuple(_attribute(part, known) for part in item)
    return _dim(item, known) if isinstance(item, Expr) else item


def _dim(dim: Dim, known: Mapping[str, int]) -> Dim:
    """The polynomial with known symbols multiplied out."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, factor in dim.terms:
        term: Dim = factor
        for atom in monomial:
            if isinstance(atom, Floor):
                term = term * floor_divide(_dim(atom.over, known), atom.by)
            else:
                term = term * (known[atom] if atom in known else Expr((((atom,), 1),)))
        total = total + term
    return total
