"""group_mlps: MLPs of equal shape, each of another token, run as one batch.

    %0 = slice(%tokens, token 0)
    %1 = linear(linear(linear(%0)))               %0 = grouped_linear(tokens, weights stacked)
    %2 = slice(%tokens, token 1)           =>     %1 = grouped_linear(%0, ...)
    %3 = linear(linear(linear(%2)))               %2 = grouped_linear(%1, ...)
    return a=%1, b=%3                             return a=first of %2, b=second of %2

The last layers may differ in width: the narrower are padded with zeros, and sliced.
"""

from dataclasses import dataclass

from samgraph.engines.torch.passes.layers import Search, width
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

_LAYERS = 3


@dataclass(frozen=True, slots=True)
class _Chain:
    """An MLP of one token."""

    tokens: Value  # [N, T, C]
    token: int
    layers: tuple[Node, ...]


def group_mlps(graph: Graph) -> Graph:
    """Join the MLPs of each list of tokens, at the position of the last."""
    search = Search(graph)
    groups: dict[tuple[object, ...], list[_Chain]] = {}
    for node in graph:
        chain = _chain(search, node) if node.op == "linear" else None
        if chain is not None:
            shapes = tuple(layer.inputs[1].type for layer in chain.layers[:-1])
            groups.setdefault((chain.tokens.name, shapes), []).append(chain)
    ends = {
        members[-1].layers[-1].result.name: members
        for members in groups.values()
        if len(members) > 1 and len({chain.token for chain in members}) == len(members)
    }
    gone = {chain.layers[-1].result.name for chains in ends.values() for chain in chains}
    if not ends:
        return graph
    rewriter = Rewriter(graph)
    waiting = _after(graph, gone, ends)
    for node in (*(n for n in graph if n not in waiting), *waiting):
        if node.result.name in ends:
            _emit(rewriter, ends[node.result.name])
        elif node.result.name not in gone:
            rewriter.keep(node)
    return rewriter.finish()


def _after(graph: Graph, gone: set[str], ends: dict[str, list[_Chain]]) -> list[Node]:
    """The last of each group and what depends on any of its MLPs: these come last, in order."""
    late: set[str] = set(gone)
    nodes = []
    for node in graph:
        reads_late = any(value.name in late for value in node.inputs)
        if node.result.name in ends or reads_late:
            late.add(node.result.name)
            nodes.append(node)
    heads = [node for node in nodes if node.result.name in ends]
    return [*heads, *(node for node in nodes if node.result.name not in ends)]


def _chain(search: Search, node: Node) -> _Chain | None:
    """The MLP that ends with a node."""
    layers = [node]
    while len(layers) < _LAYERS:
        before = search.only(layers[-1].inputs[0], "linear")
        if before is None or before.attributes.get("activation", "none") != "relu":
            return None
        layers.append(before)
    if any(len(layer.inputs) != 3 or layer.exact for layer in layers):
        return None
    fixed = all(v.name in search.weights for layer in layers for v in layer.inputs[1:])
    found = _token(search, layers[-1].inputs[0])
    if found is None or not fixed or node.attributes.get("activation", "none") == "gelu":
        return None
    return _Chain(*found, tuple(reversed(layers)))


def _token(search: Search, value: Value) -> tuple[Value, int] | None:
    """The list [N, T, C] and the number of the token that a value [N, C] is."""
    flat = search.maker(value, "reshape")
    if flat is None or value.type.rank != 2 or flat.inputs[0].type.rank != 3:
        return None
    value, token = flat.inputs[0], 0
    if value.type.shape[1] != 1:
        return None
    part = search.maker(value, "slice")
    while part is not None:
        starts, same = part.attributes["starts"], part.inputs[0].type.shape[2]
        if not isinstance(starts, tuple) or part.result.type.shape[2] != same:
            return None
        token += int(str(starts[1]))
        value = part.inputs[0]
        part = search.maker(value, "slice")
    return value, token


def _emit(rewriter: Rewriter, chains: list[_Chain]) -> None:
    chains = sorted(chains, key=lambda chain: chain.token)
    tokens = rewriter.new(chains[0].tokens)
    N, _, C = tokens.type.shape
    parts = [
        rewriter.emit(
            "slice", tokens, starts=(0, c.token, 0), ends=(N, c.token + 1, C), steps=(1, 1, 1)
        )
        for c in chains
    ]
    first, last = chains[0].token, chains[-1].token
    if last - first + 1 == len(chains):
        ends = (N, last + 1, C)
        x = rewriter.emit("slice", tokens, starts=(0, first, 0), ends=ends, steps=(1, 1, 1))
    else:
        x = rewriter.emit("concat", *parts, axis=1)
    for depth in range(_LAYERS):
        layers = [chain.layers[depth] for chain in chains]
        out = max(width(layer.result) for layer in layers)
        weight, bias = (_stacked(rewriter, [n.inputs[i] for n in layers], out) for i in (1, 2))
        activation = "none" if depth == _LAYERS - 1 else "relu"
        x = rewriter.emit("grouped_linear", x, weight, bias, activation=activation)
    for index, chain in enumerate(chains):
        end = chain.layers[-1]
        wide = width(end.result)
        starts, ends = (0, index, 0), (N, index + 1, wide)
        y = rewriter.emit("slice", x, starts=starts, ends=ends, steps=(1, 1, 1))
        y = rewriter.emit("reshape", y, shape=(N, wide))
        activation = str(end.attributes.get("activation", "none"))
        y = y if activation == "none" else rewriter.emit(activation, y)
        rewriter.replace(end.result, y)


def _stacked(rewriter: Rewriter, values: list[Value], out: int) -> Value:
    """Weights or biases on a new first axis, padded with zeros to `out` rows."""
    parts = []
    for value in values:
        new, rest = rewriter.new(value), value.type.shape[1:]
        missing = out - width(value, 0)
        if missing:
            after = (missing, *(0,) * len(rest))
            new = rewriter.emit("pad", new, before=(0,) * len(after), after=after, value=0.0)
        parts.append(rewriter.emit("reshape", new, shape=(1, out, *rest)))
    return rewriter.emit("concat", *parts, axis=0)
