"""cut: split a graph into stages, which pass each other the marked values by name.

    graph net(%x) {                     graph net.0(%x) {
      %0 = linear(%x, %w)                 %0 = linear(%x, %w)
      %1 = gelu(%0)                       return hidden=%0
      mark hidden=%0             =>     }
      return y=%1                       graph net.1(%hidden) {
    }                                     %0 = gelu(%hidden)
                                          return y=%0
                                        }

A stage computes marks that do not depend on each other, in the order of their nodes; the last
also computes the outputs. Unmarked values that two stages need are computed in both. An input that
only binds a symbol of a stage is an input of that stage too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from samgraph.errors import GraphError
from samgraph.graph.binding import solvable_symbols
from samgraph.graph.dims import Expr
from samgraph.graph.graph import Graph, Node, Value, dims_of
from samgraph.graph.verifier import verify
from samgraph.passes.drop_unused import drop_unused
from samgraph.passes.rewriter import Outputs, renumber, with_values


def cut(graph: Graph, names: Collection[str] | None = None) -> tuple[Graph, ...]:
    """The stages of a graph in the order they run, cut at all its marks or at those of `names`.

    Inputs and outputs of a stage are named after inputs, marks and outputs of the graph. A mark of
    a value that is an output, or that no output needs, cuts nothing.
    """
    marked = {name for name, _ in graph.marks}
    for name in names or ():
        if name not in marked:
            raise GraphError(f"graph `{graph.name}` has no mark `{name}`", got=sorted(marked))
    whole = drop_unused(graph)
    stages: list[Graph] = []
    known: dict[str, str] = {value.name: value.name for value in whole.inputs}
    for group in _groups(whole, list(_cuts(whole, names))):
        stages.append(stage(whole, f"{graph.name}.{len(stages)}", group, known))
        known |= {value.name: name for name, value in group}
    return tuple(stages)


def _cuts(graph: Graph, names: Collection[str] | None) -> Iterator[tuple[str, Value]]:
    """The marks to cut at, in the order of their nodes; one per value."""
    outputs = {value.name for _, value in graph.outputs}
    by_value: dict[str, str] = {}
    for name, value in graph.marks:
        if (names is None or name in names) and value.name not in outputs:
            by_value.setdefault(value.name, name)
    for node in graph:
        if node.result.name in by_value:
            yield by_value[node.result.name], node.result


def _groups(graph: Graph, cuts: list[tuple[str, Value]]) -> Iterator[Outputs]:
    """Values that one stage computes, stage by stage; the outputs are in the last."""
    stops = {value.name for _, value in cuts}
    group: list[tuple[str, Value]] = []
    for name, value in cuts:
        if _reads(graph, [value], stops) & {other.name for _, other in group}:
            yield tuple(group)
            group = []
        group.append((name, value))
    results = [value for _, value in graph.outputs]
    if _reads(graph, results, stops) & {other.name for _, other in group}:
        yield tuple(group)
        group = []
    yield (*group, *graph.outputs)


def _reads(graph: Graph, values: Iterable[Value], stops: Collection[str]) -> set[str]:
    """Which of `stops` the values are computed from, directly or through other nodes."""
    producers, found, seen = graph.producers(), set(), set()
    waiting = [producers[value.name] for value in values if value.name in producers]
    while waiting:
        node = waiting.pop()
        for value in node.inputs:
            if value.name in stops:
                found.add(value.name)
            elif value.name in producers and value.name not in seen:
                seen.add(value.name)
                waiting.append(producers[value.name])
    return found


def stage(
    graph: Graph,
    name: str,
    results: Outputs,
    known: Mapping[str, str],
    inputs_kept: Collection[Value] = (),
) -> Graph:
    """The part of a graph that computes `results` from the values in `known`.

    `known` gives the names that these values have as inputs of the part; `inputs_kept` are inputs
    of the part even where it does not read them.
    """
    needed = {value.name for value in (*inputs_kept, *(value for _, value in results))}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if node.result.name in needed and node.result.name not in known:
            nodes.append(node)
            needed.update(value.name for value in node.inputs)
    nodes.reverse()
    made = [*graph.inputs, *(node.result for node in graph)]
    inputs = [value for value in made if value.name in needed and value.name in known]
    inputs += _binding([value for value in graph.inputs if value.name in known], nodes, inputs)
    given = {value.name: Value(known[value.name], value.type) for value in inputs}

    def renamed(value: Value) -> Value:
        return given.get(value.name, value)

    moved = [
        with_values(node, tuple(renamed(value) for value in node.inputs), node.result)
        for node in nodes
    ]
    outputs = tuple((label, renamed(value)) for label, value in results)
    params = tuple(value for value in graph.params if value.name in needed)
    taken = {*(value.name for value in given.values()), *(label for label, _ in results)}
    marks = tuple((label, renamed(v)) for label, v in graph.marks if label not in taken)
    part = renumber(Graph(name, tuple(given.values()), params, (), ()), moved, outputs, marks)
    verify(part)
    return part


def symbols_of(nodes: Iterable[Node]) -> frozenset[str]:
    """The symbols in the results and attributes of nodes."""
    found: set[str] = set()
    for node in nodes:
        dims = [dim for item in node.attributes.values() for dim in dims_of(item)]
        found |= node.result.type.symbols
        found.update(*(dim.symbols for dim in dims if isinstance(dim, Expr)))
    return frozenset(found)


def _binding(offered: list[Value], nodes: list[Node], inputs: list[Value]) -> list[Value]:
    """Those of the `offered` inputs that a stage needs only for the symbols they bind."""
    used = symbols_of(nodes).union(*(value.type.symbols for value in inputs))
    added: list[Value] = []
    waiting = [value for value in offered if value not in inputs]
    while not used <= (bound := solvable_symbols([*inputs, *added])):
        more = (v for v in waiting if solvable_symbols([*inputs, *added, v]) > bound)
        added.append(next(more))  # exists: together the inputs bind every symbol
        waiting.remove(added[-1])
    return added
