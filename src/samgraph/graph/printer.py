"""A graph as text. `parser.parse_graph` reads it back to an equal graph.

    graph mlp(
      %x: f32[B,8],
      param %w: f32[4,8],
    ) {
      %0: f32[B,4] = linear(%x, %w)
      %1: f32[B,4] = relu(%0)
      mark hidden=%0
      return y=%1
    }

Small constants print their numbers. A large one prints a digest, and its bytes only with
``data=True``, in lines after the closing brace.
"""

import base64
import zlib

import numpy as np

from samgraph.graph.graph import Attribute, Graph, Literal, Node
from samgraph.graph.types import dtype_of

INLINE_ELEMENTS = 16


def print_graph(graph: Graph, *, data: bool = False) -> str:
    """The text of a graph; `data` adds the bytes of its large constants."""
    lines = [f"graph {graph.name}("]
    lines += [f"  %{value.name}: {value.type}," for value in graph.inputs]
    lines += [f"  param %{value.name}: {value.type}," for value in graph.params]
    lines.append(") {")
    lines += [f"  {print_node(node)}" for node in graph.nodes]
    lines += [f"  mark {name}=%{value.name}" for name, value in graph.marks]
    outputs = ", ".join(f"{name}=%{value.name}" for name, value in graph.outputs)
    lines += [f"  return {outputs}", "}"]
    if data:
        literals = {item.digest: item for item in large_literals(graph)}
        lines += [f"#{digest} {_bytes(literals[digest])}" for digest in sorted(literals)]
    return "\n".join(lines)


def print_node(node: Node) -> str:
    """One line: ``%1: f32[B,4] = relu(%0)``; an exact node has ``exact`` in front of its op."""
    arguments = [f"%{value.name}" for value in node.inputs]
    arguments += [f"{key}={print_attribute(value)}" for key, value in node.attributes.items()]
    mark = "exact " if node.exact else ""
    return f"%{node.result.name}: {node.result.type} = {mark}{node.op}({', '.join(arguments)})"


def print_attribute(value: Attribute) -> str:
    """An attribute as printed."""
    if isinstance(value, Literal):
        return _print_literal(value)
    if isinstance(value, tuple):
        inside = ",".join(print_attribute(part) for part in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, str):
        return f'"{value}"'
    return repr(value)


def large_literals(graph: Graph) -> list[Literal]:
    """The constants that print as a digest."""
    literals = [value for node in graph for value in node.attributes.values()]
    return [v for v in literals if isinstance(v, Literal) and v.array.size > INLINE_ELEMENTS]


def _print_literal(literal: Literal) -> str:
    array = literal.array
    if array.size > INLINE_ELEMENTS:
        return f"#{literal.digest}"
    numbers = ",".join(_number(item) for item in array.reshape(-1))
    dims = ",".join(map(str, array.shape))
    return f"{dtype_of(array)}[{dims}]{{{numbers}}}"


def _number(item: np.generic) -> str:
    return repr(item.item()) if item.dtype.kind in "biuf" else repr(float(item))


def _bytes(literal: Literal) -> str:
    array = literal.array
    dims = ",".join(map(str, array.shape))
    packed = base64.b85encode(zlib.compress(array.tobytes(), 1)).decode()
    return f"{dtype_of(array)}[{dims}] {packed}"
