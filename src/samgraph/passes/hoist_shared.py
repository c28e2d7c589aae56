"""hoist_shared: split a graph in two, so that what depends only on some inputs is computed once.

    graph net(%image, %point) {               graph net.shared(%image) {
      %0 = linear(%image, %w)                   %0 = linear(%image, %w)
      %1 = expand(%0, shape=(N,C))              return image.0=%0
      %2 = add(%1, %point)               =>   }
      return y=%2                             graph net.rest(%image.0, %point) {
    }                                           %0 = add(%image.0, %point)
                                                return y=%0
                                              }

Run the first once per image and the second once per prompt. Expansions sink first
(`sink_expand`), so that they are in the second. A value passed from one to the other is named
after its mark, or else after the input it depends on. What depends on weights alone is in both.
"""

from collections.abc import Collection, Iterable

from samgraph.errors import GraphError
from samgraph.graph.binding import solvable_symbols
from samgraph.graph.graph import Graph, Value
from samgraph.passes.cut import stage, symbols_of
from samgraph.passes.rewriter import Outputs
from samgraph.passes.sink_expand import sink_expand

_Dependencies = dict[str, frozenset[str]]  # the inputs that each value depends on


def hoist_shared(
    graph: Graph, inputs: Collection[str], names: tuple[str, str] | None = None
) -> tuple[Graph, Graph]:
    """The graph of what depends only on `inputs`, and the graph of the rest.

    The outputs of the first are inputs of the second, under the same names; the other inputs are
    inputs of the second even if nothing reads them. `names` are the names of the two.
    """
    given = [graph.input(name) for name in inputs]
    whole, marks = _with_expansions_sunk(graph)
    depends = _dependencies(whole)
    shared = _shared(whole, given)
    passed = _named(_frontier(whole, shared), marks, depends)
    if not passed:
        raise GraphError(
            f"nothing in graph `{graph.name}` depends on these inputs alone", got=", ".join(inputs)
        )
    first, second = names or (f"{graph.name}.shared", f"{graph.name}.rest")
    known = {value.name: value.name for value in given}
    rest = {value.name: value.name for value in whole.inputs}
    rest |= {value.name: name for name, value in passed}
    others = [value for value in whole.inputs if value not in given]
    return (
        stage(whole, first, passed, known),
        stage(whole, second, whole.outputs, rest, inputs_kept=others),
    )


def _with_expansions_sunk(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """The graph, and the marks by value; a mark of an expansion also marks the expanded value."""
    outputs = (*graph.outputs, *graph.marks)
    watched = Graph(graph.name, graph.inputs, graph.params, graph.nodes, outputs)
    sunk, count = sink_expand(watched), len(graph.outputs)
    marks: dict[str, str] = {}
    for name, value in sunk.outputs[count:]:
        made = sunk.producers().get(value.name)
        marks.setdefault(value.name, name)
        if made is not None and made.op == "expand":
            marks.setdefault(made.inputs[0].name, name)
    kept, inside = sunk.outputs[:count], sunk.outputs[count:]
    return Graph(graph.name, sunk.inputs, sunk.params, sunk.nodes, kept, inside), marks


def _dependencies(graph: Graph) -> _Dependencies:
    depends = {value.name: frozenset((value.name,)) for value in graph.inputs}
    for node in graph:
        found = (depends.get(value.name, frozenset()) for value in node.inputs)
        depends[node.result.name] = frozenset().union(*found)
    return depends


def _shared(graph: Graph, given: list[Value]) -> set[str]:
    """The values that depend on inputs, only on those `given` and their sizes."""
    bound = solvable_symbols(given)
    shared = {value.name: value in given for value in graph.inputs}
    for node in graph:
        read = [shared[value.name] for value in node.inputs if value.name in shared]
        if read:
            shared[node.result.name] = all(read) and symbols_of([node]) <= bound
    return {name for name, is_shared in shared.items() if is_shared}


def _frontier(graph: Graph, shared: set[str]) -> list[Value]:
    """The shared values that the rest reads, in order; inputs are known anyway."""
    needed = {value.name for _, value in graph.outputs}
    for node in reversed(graph.nodes):
        if node.result.name in needed and node.result.name not in shared:
            needed.update(value.name for value in node.inputs)
    made = (node.result for node in graph)
    return [value for value in made if value.name in needed and value.name in shared]


def _named(values: Iterable[Value], marks: dict[str, str], depends: _Dependencies) -> Outputs:
    named: dict[str, Value] = {}
    for value in values:
        source = "-".join(sorted(depends[value.name]))
        numbers = (f"{source}.{i}" for i in range(len(named) + 1))
        free = next(name for name in numbers if name not in named)
        named[marks.get(value.name, free)] = value
    return tuple(named.items())
