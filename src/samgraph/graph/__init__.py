"""The graph IR: types, values and nodes; tracing; printer and parser; verifier; drawing."""

from samgraph.graph.builder import Builder, Scope, Tensor, emit, trace
from samgraph.graph.dims import Dim, Expr, Shape, symbol
from samgraph.graph.graph import Attribute, Graph, Literal, Node, Value
from samgraph.graph.parser import parse_graph
from samgraph.graph.picture import to_dot, to_svg
from samgraph.graph.printer import print_graph
from samgraph.graph.types import Array, DType, TensorType, parse_type
from samgraph.graph.verifier import verify

__all__ = [
    "Array",
    "Attribute",
    "Builder",
    "DType",
    "Dim",
    "Expr",
    "Graph",
    "Literal",
    "Node",
    "Scope",
    "Shape",
    "Tensor",
    "TensorType",
    "Value",
    "emit",
    "parse_graph",
    "parse_type",
    "print_graph",
    "symbol",
    "to_dot",
    "to_svg",
    "trace",
    "verify",
]
