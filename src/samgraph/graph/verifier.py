"""The invariants of a graph, checked after building, after parsing and after every pass.

1. Every name consists of letters, digits and `_.-/`, is defined once, and before it is used.
2. Every op is in the table, and its type rule gives the type of its result.
3. Every symbol is bound by a dimension of an input.
4. Outputs and marks are defined and have distinct names; those of marks are not used otherwise.
"""

from collections.abc import Collection

from samgraph.errors import GraphError, SamgraphError
from samgraph.graph.binding import solvable_symbols
from samgraph.graph.graph import Graph, Node, Value, check_name
from samgraph.graph.registry import infer

LONGEST_SHOWN = 1000


def verify(graph: Graph, legal: Collection[str] | None = None) -> None:
    """Raise `GraphError` when `graph` breaks a rule, or uses an op that is not `legal`."""
    if legal is None and graph.is_verified():
        return
    known: dict[str, Value] = {}
    _check_names(graph)
    for value in (*graph.inputs, *graph.params):
        if value.name in known:
            raise GraphError(f"%{value.name} is declared twice in graph `{graph.name}`")
        known[value.name] = value
    for value in graph.params:
        if value.type.symbols:
            raise GraphError(f"param %{value.name} has a symbolic shape", got=value.type)
    symbols = _check_symbols(graph)
    for node in graph.nodes:
        _check_node(node, known, symbols)
        if legal is not None and node.op not in legal:
            raise GraphError(f"`{node.op}` is not legal at this stage, in: {show(node)}")
        known[node.result.name] = node.result
    names = [name for name, _ in graph.outputs]
    if not names or len(set(names)) != len(names):
        raise GraphError(f"graph `{graph.name}` needs outputs with different names", got=names)
    for name, value in graph.outputs:
        if known.get(value.name) != value:
            raise GraphError(f"the output {name}=%{value.name} is never defined")
    _check_marks(graph, known)
    graph.mark_verified()


def _check_marks(graph: Graph, known: dict[str, Value]) -> None:
    """A stage cut at a mark has it as input or output: its name must be unique."""
    taken = {value.name for value in (*graph.inputs, *graph.params)}
    taken |= {name for name, _ in graph.outputs}
    for name, value in graph.marks:
        check_name("a mark", name)
        if name in taken:
            raise GraphError(f"the mark `{name}` of graph `{graph.name}` is named like another")
        taken.add(name)
        if known.get(value.name) != value:
            raise GraphError(f"the mark {name}=%{value.name} is never defined")


def show(node: Node) -> str:
    """One node as printed, shortened for messages."""
    from samgraph.graph.printer import print_node

    text = print_node(node)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _check_names(graph: Graph) -> None:
    check_name("a graph", graph.name)
    for value in graph.inputs:
        check_name("an input", value.name)
    for value in graph.params:
        check_name("a param", value.name)
    for name, _ in graph.outputs:
        check_name("an output", name)


def _check_symbols(graph: Graph) -> frozenset[str]:
    solvable = solvable_symbols(graph.inputs)
    unknown = set(graph.symbols) - solvable
    if unknown:
        raise GraphError(
            f"no input of graph `{graph.name}` binds `{sorted(unknown)[0]}`",
            hint="give an input a dimension that is this symbol alone",
        )
    return solvable


def _check_node(node: Node, known: dict[str, Value], symbols: frozenset[str]) -> None:
    for value in node.inputs:
        if value.name not in known:
            raise GraphError(f"%{value.name} is used before it is defined, in: {show(node)}")
        if known[value.name] is not value and known[value.name] != value:
            raise GraphError(f"%{value.name} is used with another type, in: {show(node)}")
    if node.result.name in known:
        raise GraphError(f"%{node.result.name} is defined twice, in: {show(node)}")
    used = node.symbols_if_checked
    if used is None:
        used = _check_type(node)
    if not used <= symbols:
        unknown = sorted(used - symbols)[0]
        raise GraphError(f"no input binds `{unknown}`, in: {show(node)}")


def _check_type(node: Node) -> frozenset[str]:
    """Run the type rule, once per node: passes reuse most nodes."""
    try:
        expected = infer(node.op, tuple(value.type for value in node.inputs), node.attributes)
    except SamgraphError as error:
        raise GraphError(f"{error}\n  in: {show(node)}") from error
    if expected != node.result.type:
        raise GraphError(f"the type rule of `{node.op}` gives {expected}, in: {show(node)}")
    return node.mark_checked()
