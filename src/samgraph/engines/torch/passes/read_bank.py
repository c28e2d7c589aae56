"""read_bank: keys and values of memory attention are read from the pages of a bank directly.

    %0 = reshape(cast(gather(%pages, %frames)))
    %1 = concat(%0, %tokens)                                  %0 = bank_values(%pages, ...)
    %2 = reshape(add(gather(%times, %slots), %grid))    =>    %1 = bank_keys(%pages, ...)
    %3 = add(%1, concat(%2, %positions))                      return values=%0, keys=%1
    return values=%1, keys=%3

Otherwise each step copies the whole memory once more.
"""

from dataclasses import dataclass

from samgraph.engines.torch.passes.layers import Search, width
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class _Read:
    """Where values come from."""

    pages: Value
    frames: Value
    tokens: Value


def read_bank(graph: Graph) -> Graph:
    """Rewrite values, and the keys computed from them."""
    if not graph.has("gather"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    found: dict[str, _Read] = {}
    for node in graph:
        read = _values(search, node) if node.op == "concat" else None
        made = _keys(search, rewriter, node, found) if node.op == "add" else None
        if read is not None:
            found[node.result.name] = read
            values = (read.pages, read.frames, read.tokens)
            made = rewriter.emit("bank_values", *(rewriter.new(value) for value in values))
        if made is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, made)
    return rewriter.finish()


def _values(search: Search, node: Node) -> _Read | None:
    if len(node.inputs) != 2 or node.attributes["axis"] != 1 or node.result.type.rank != 3:
        return None
    flat = search.maker(node.inputs[0], "reshape")
    picked = search.maker(flat.inputs[0], "cast", "gather") if flat else None
    if picked is not None and picked.op == "cast":
        picked = search.maker(picked.inputs[0], "gather")
    if picked is None or picked.op != "gather" or picked.result.type.rank != 4:
        return None
    pages, frames = picked.inputs
    rows = picked.attributes["axis"] == 0 and picked.attributes["batch"] == 0
    known = isinstance(pages.type.shape[1], int) and isinstance(pages.type.shape[2], int)
    if not rows or not known or frames.type.rank != 2 or node.result.type.dtype != "f32":
        return None
    return _Read(pages, frames, node.inputs[1])


def _keys(search: Search, rewriter: Rewriter, node: Node, found: dict[str, _Read]) -> Value | None:
    read = found.get(node.inputs[0].name)
    embeddings = search.only(node.inputs[1], "concat")
    if (
        read is None
        or embeddings is None
        or len(embeddings.inputs) != 2
        or embeddings.attributes["axis"] != 1
    ):
        return None
    flat = search.only(embeddings.inputs[0], "reshape")
    tagged = search.only(flat.inputs[0], "add") if flat else None
    spread = search.only(tagged.inputs[0], "reshape") if tagged else None
    picked = search.only(spread.inputs[0], "gather") if spread else None
    if tagged is None or picked is None or picked.inputs[0].type.rank != 2:
        return None
    times, slots = picked.inputs
    grid, positions = tagged.inputs[1], embeddings.inputs[1]
    rows = picked.attributes["axis"] == 0 and picked.attributes["batch"] == 0
    T, c = width(read.pages, 1), width(read.pages)
    fits = grid.type.shape in ((1, 1, T, c), (T, c)) and positions.type == read.tokens.type
    if not rows or not fits or slots.type.shape != read.frames.type.shape:
        return None
    flat_grid = rewriter.emit("reshape", rewriter.new(grid), shape=(T, c))
    values = (read.pages, read.frames, read.tokens, times, slots)
    new = [rewriter.new(value) for value in values]
    return rewriter.emit("bank_keys", *new, flat_grid, rewriter.new(positions))
