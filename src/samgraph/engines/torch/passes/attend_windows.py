"""attend_windows: attention in windows reads the map in place.

    %0 = reshape(pad(%x)) ... transpose ... reshape          windows as a batch
    %1 = linear(%0, %wq, %bq), likewise k and v              %0 = linear(%x, %wq, %bq)
    %2 = attention(q, k, v)                            =>    %1 = linear(%x, %wk, %bk), v
    %3 = linear(%2, %wo, %bo)                                %2 = window_attention(q, k, v, ...)
    %4 = slice(reshape(transpose(reshape(%3))))              %3 = linear(%2, %wo, %bo)
    return y=%4                                              return y=%3

Linear layers act on each token, so the map need not be partitioned for them, and padding is not
computed: the projection of a padded zero is the bias. Where queries are pooled, so are their
linear layer and that of the shortcut, which is added: `fused_linear` with `pool`.
"""

from dataclasses import dataclass

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

_WINDOWS = (0, 1, 3, 2, 4, 5)  # [B, rows, h, columns, w, C] <-> [B, rows, columns, h, w, C]
_QUADS = (0, 1, 4, 3, 6, 2, 5, 7)  # with h and w in pairs, which go to the front


@dataclass(frozen=True, slots=True)
class _Match:
    """The parts of attention in windows that are kept."""

    x: Value  # the map [B, H, W, C]
    attention: Node
    projections: tuple[Node, Node, Node]
    output: Node  # the output projection
    window: tuple[int, int]
    shortcut: Node | None  # the shortcut's linear layer, where queries are pooled


def attend_windows(graph: Graph) -> Graph:
    """Rewrite every attention whose windows were partitioned from a map."""
    if not graph.has("attention"):
        return graph
    search = _Search(graph)
    found = dict(match for node in graph if (match := search.match(node)) is not None)
    rewriter = Rewriter(graph)
    for node in graph:
        if node.result.name in found:
            rewriter.replace(node.result, _emit(rewriter, found[node.result.name]))
        else:
            rewriter.keep(node)
    return rewriter.finish()


class _Search:
    """Matches the pattern around each attention."""

    def __init__(self, graph: Graph) -> None:
        self._made, self._uses = graph.producers(), graph.use_counts()
        self._readers = {value.name: node for node in graph for value in node.inputs}

    def match(self, node: Node) -> tuple[str, _Match] | None:
        """The name of the map that comes out, and the parts."""
        if node.op != "attention" or len(node.inputs) != 3:
            return None
        sources = [self._projection(value) for value in node.inputs]
        kinds = {kind for kind, _ in sources}
        q, k, v = (layer for _, layer in sources)
        if q is None or k is None or v is None or len({n.inputs[0].name for n in (q, k, v)}) != 1:
            return None
        cut = self._cut(q.inputs[0])
        output = self._only_reader(node)
        if cut is None or output is None or not _is_linear(output, node.result):
            return None
        x, window, is_quad = cut
        if kinds != ({"max", "flat"} if is_quad else {"plain"}):
            return None
        shortcut, last = None, output
        if is_quad:
            added = self._shortcut(output, q.inputs[0])
            if added is None:
                return None
            shortcut, last = added
        end = self._joined(last, x, 2 if is_quad else 1)
        if end is None:
            return None
        return end.name, _Match(x, node, (q, k, v), output, window, shortcut)

    def _projection(self, value: Value) -> tuple[str, Node | None]:
        """The linear layer that makes q, k or v, and how its result is read."""
        node, kind = self._made.get(value.name), "plain"
        if node is not None and node.op == "reduce" and _is_quad_max(node):
            node, kind = self._made.get(node.inputs[0].name), "max"
        elif node is not None and node.op == "reshape":
            node, kind = self._made.get(node.inputs[0].name), "flat"
        plain = node is not None and _is_linear(node, node.inputs[0]) and len(node.inputs) == 3
        return kind, node if plain else None

    def _cut(self, value: Value) -> tuple[Value, tuple[int, int], bool] | None:
        """The map that windows were partitioned from, their size, and whether in quads."""
        flat = self._made.get(value.name)
        moved = self._made.get(flat.inputs[0].name) if flat and flat.op == "reshape" else None
        if moved is None or moved.op != "transpose":
            return None
        axes, split = moved.attributes["axes"], self._made.get(moved.inputs[0].name)
        if split is None or split.op != "reshape" or axes not in (_WINDOWS, _QUADS):
            return None
        shape = split.result.type.shape
        sizes = (shape[2], shape[4]) if axes == _WINDOWS else (shape[2], shape[5])
        pairs = axes == _QUADS and (shape[3], shape[6]) == (2, 2)
        if (axes == _QUADS and not pairs) or not all(isinstance(size, int) for size in sizes):
            return None
        times = 2 if pairs else 1
        window = (int(str(sizes[0])) * times, int(str(sizes[1])) * times)
        x = split.inputs[0]
        pad = self._made.get(x.name)
        if pad is not None and pad.op == "pad" and pad.attributes["value"] == 0.0:
            ok = not any(pad.attributes["before"])  # type: ignore[arg-type]  # a tuple of ints
            x = pad.inputs[0] if ok else x
        return (x, window, pairs) if x.type.rank == 4 else None

    def _shortcut(self, output: Node, windows: Value) -> tuple[Node, Node] | None:
        """The pooled linear layer that is added to the output, and the addition."""
        added = self._only_reader(output)
        if added is None or added.op != "add":
            return None
        left, right = added.inputs
        other = right if left == output.result else left
        kind, layer = self._projection(other)
        if kind != "max" or layer is None or layer.inputs[0] != windows:
            return None
        return layer, added

    def _joined(self, last: Node, x: Value, shrink: int) -> Value | None:
        """The map that the windows are joined into: reshape, transpose, reshape, slice."""
        sides = [side // shrink for side in x.type.shape[1:3] if isinstance(side, int)]
        node: Node | None = last
        for op in ("reshape", "transpose", "reshape"):
            node = self._only_reader(node)
            if node is None or node.op != op:
                return None
            if op == "transpose" and node.attributes["axes"] != _WINDOWS:
                return None
        whole = node.result if node else None
        if whole is None or whole.type.rank != 4:
            return None
        if list(whole.type.shape[1:3]) == sides:
            return whole
        part = self._only_reader(node)
        if part is None or part.op != "slice" or any(part.attributes["starts"]):  # type: ignore[arg-type]  # ints
            return None
        return part.result if list(part.result.type.shape[1:3]) == sides else None

    def _only_reader(self, node: Node | None) -> Node | None:
        if node is None or self._uses.get(node.result.name) != 1:
            return None
        return self._readers.get(node.result.name)


def _is_linear(node: Node, value: Value) -> bool:
    plain = node.op == "linear" and node.attributes.get("activation", "none") == "none"
    return plain and node.inputs[0] == value


def _is_quad_max(node: Node) -> bool:
    given = node.attributes
    return given["how"] == "max" and given["axes"] == (1,) and not given["keep"]


def _emit(rewriter: Rewriter, match: _Match) -> Value:
    x = rewriter.new(match.x)
    q, k, v = ([rewriter.new(value) for value in n.inputs[1:]] for n in match.projections)
    keys, values = rewriter.emit("linear", x, *k), rewriter.emit("linear", x, *v)
    if match.shortcut is None:
        queries, added = rewriter.emit("linear", x, *q), []
    else:
        queries = rewriter.emit("fused_linear", x, *q, pool=True)
        weights = [rewriter.new(value) for value in match.shortcut.inputs[1:]]
        added = [rewriter.emit("fused_linear", x, *weights, pool=True)]
    given = match.attention.attributes
    y = rewriter.emit(
        "window_attention", queries, keys, values, k[1], v[1], window=match.window,
        heads=given["heads"], scale=given["scale"],
    )  # fmt: skip
    output = [rewriter.new(value) for value in match.output.inputs[1:]]
    result = rewriter.emit("linear", y, *output)
    return rewriter.emit("add", result, *added) if added else result
