"""fuse_rotations: axial RoPE becomes part of the linear layer before it.

    %0 = linear(%x, %w, %b)
    %1 = slice(%0, first columns)                %0 = fused_linear(%x, %w, %b, rotated=...)
    %2 = slice(%0, the others)            =>     %1 = slice(%0, first columns)
    %3 = axial_rope(%1, grid=...)                %2 = slice(%0, the others)
    return q=%3, v=%2                            return q=%1, v=%2

What is rotated must be the first columns of the layer, whole slices of it, all of one kind; and
nothing else may read them.
"""

from samgraph.engines.torch.passes.layers import LAYERS, Readers, graph_readers, width
from samgraph.graph.graph import Attribute, Graph, Node
from samgraph.passes.rewriter import Rewriter

_KIND = ("grid", "theta", "unrotated")


def fuse_rotations(graph: Graph) -> Graph:
    """Give every linear layer the rotations that read it."""
    if not graph.has("axial_rope"):
        return graph
    readers = graph_readers(graph)
    rotations: dict[str, dict[str, Attribute]] = {}
    gone: set[str] = set()
    for node in graph:
        found = _rotation(node, readers) if _is_plain_layer(node) else None
        if found is not None:
            rotations[node.result.name], ropes = found
            gone.update(ropes)
    rewriter = Rewriter(graph)
    for node in graph:
        if node.result.name in rotations:
            inputs = [rewriter.new(value) for value in node.inputs]
            extra = {**node.attributes, **rotations[node.result.name]}
            fused = rewriter.emit("fused_linear", *inputs, exact=node.exact, **extra)
            rewriter.replace(node.result, fused)
        elif node.result.name in gone:
            rewriter.replace(node.result, rewriter.new(node.inputs[0]))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _is_plain_layer(node: Node) -> bool:
    """Whether it is a linear layer with a bias and nothing that must come last."""
    is_layer = node.op in LAYERS and len(node.inputs) == 3
    return is_layer and not node.attributes.get("pool") and not node.attributes.get("rotated")


def _rotation(node: Node, readers: Readers) -> tuple[dict[str, Attribute], set[str]] | None:
    """The attributes of the rotation, and the nodes that go."""
    columns: dict[int, tuple[int, Node]] = {}  # start -> end and rope
    for reader in readers.get(node.result.name, []):
        if reader is not None and reader.op == "axial_rope":
            columns[0] = (width(node.result), reader)
        elif reader is not None and reader.op == "slice":
            rope = _only_rope(reader, readers)
            if rope is None:
                continue
            start = reader.attributes["starts"][-1]  # type: ignore[index]  # a tuple of ints
            columns[int(str(start))] = (int(str(start)) + width(reader.result), rope)
    end = 0
    ropes: list[Node] = []
    while end in columns:
        end, rope = columns[end]
        ropes.append(rope)
    if not ropes or len(ropes) != len(columns):
        return None
    widths = {width(rope.result) // int(str(rope.attributes["heads"])) for rope in ropes}
    kinds = [tuple(rope.attributes[key] for key in _KIND) for rope in ropes]
    whole = end == width(node.result) or len(readers[node.result.name]) > 1
    if len(widths) != 1 or any(kind != kinds[0] for kind in kinds) or not whole:
        return None
    attributes = dict(zip(_KIND, kinds[0], strict=True))
    return attributes | {"rotated": end, "width": widths.pop()}, {r.result.name for r in ropes}


def _only_rope(node: Node, readers: Readers) -> Node | None:
    """The rotation that alone reads a slice of columns."""
    front = node.result.type.shape[:-1] == node.inputs[0].type.shape[:-1]
    found = readers.get(node.result.name, [])
    rope = found[0] if len(found) == 1 and front else None
    return rope if rope is not None and rope.op == "axial_rope" else None
