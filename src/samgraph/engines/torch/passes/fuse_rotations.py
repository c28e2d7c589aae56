"""fuse_rotations: axial RoPE becomes part of the linear layer before it.

    %0 = linear(%x, %w, %b)                      %0 = heads of %w and %b in halves
    %1 = slice(%0, first columns)                %1 = fused_linear(%x, %0, rotated=...)
    %2 = slice(%0, the others)            =>     %2 = slice(%1, first columns)
    %3 = axial_rope(%1, grid=...)                %3 = slice(%1, the others)
    return y=attention(%3, ..., %2)              return y=attention(%2, ..., %3)

What is rotated must be the first columns of the layer, whole slices of it, all of one kind; and
attention alone may read it, of queries and keys that are both rotated. Then the channels of a head
may be in any order, and are put in halves, even before odd: a kernel has both of a pair without a
shuffle. Other rotations, such as of pooled keys and their queries, stay as they are.
"""

from samgraph.engines.torch.passes.layers import (
    LAYERS,
    Readers,
    graph_readers,
    takes_columns,
    width,
)
from samgraph.graph.graph import Attribute, Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

# The attributes of a layer, and the nodes that they replace.
Rotation = tuple[dict[str, Attribute], set[str]]
_KIND = ("grid", "theta", "unrotated")


def fuse_rotations(graph: Graph) -> Graph:
    """Fuse the rotations that read a linear layer into it."""
    if not graph.has("axial_rope"):
        return graph
    readers = graph_readers(graph)
    found = {
        node.result.name: rotation
        for node in graph
        if _is_plain_layer(node) and (rotation := _rotation(node, readers)) is not None
    }
    found = _read_by_attention(graph, found)
    if not found:
        return graph
    rotations = {layer: attributes for layer, (attributes, _) in found.items()}
    gone = {rope for _, ropes in found.values() for rope in ropes}
    rewriter = Rewriter(graph)
    for node in graph:
        if node.result.name in rotations:
            extra = rotations[node.result.name]
            weights = [_in_halves(rewriter, value, extra) for value in node.inputs[1:]]
            x = rewriter.new(node.inputs[0])
            given = {**node.attributes, **extra}
            fused = rewriter.emit("fused_linear", x, *weights, exact=node.exact, **given)
            rewriter.replace(node.result, fused)
        elif node.result.name in gone:
            rewriter.replace(node.result, rewriter.new(node.inputs[0]))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _read_by_attention(graph: Graph, found: dict[str, Rotation]) -> dict[str, Rotation]:
    """The layers whose rotations only attention reads, queries and keys both among them."""
    while True:
        layers = {rope: layer for layer, (_, ropes) in found.items() for rope in ropes}
        unfit = {layers[value.name] for _, value in graph.outputs if value.name in layers}
        for node in graph:
            read = [index for index, value in enumerate(node.inputs) if value.name in layers]
            if read and (node.op != "attention" or read != [0, 1]):
                unfit |= {layers[node.inputs[index].name] for index in read}
        if not unfit:
            return found
        found = {layer: found[layer] for layer in found if layer not in unfit}


def _in_halves(rewriter: Rewriter, value: Value, rotation: dict[str, Attribute]) -> Value:
    """Weight or bias with the rows of each rotated head in halves."""
    rotated, head = (int(str(rotation[key])) for key in ("rotated", "width"))
    new, count, rest = rewriter.new(value), width(value, 0), value.type.shape[1:]
    front, steps = (0,) * len(rest), (1,) * (1 + len(rest))
    part = rewriter.emit("slice", new, starts=(0, *front), ends=(rotated, *rest), steps=steps)
    split = rewriter.emit("reshape", part, shape=(rotated // head, head // 2, 2, *rest))
    axes = (0, 2, 1, *range(3, 3 + len(rest)))
    transposed = rewriter.emit("transpose", split, axes=axes)
    halves = rewriter.emit("reshape", transposed, shape=(rotated, *rest))
    if rotated == count:
        return halves
    others = rewriter.emit("slice", new, starts=(rotated, *front), ends=(count, *rest), steps=steps)
    return rewriter.emit("concat", halves, others, axis=0)


def _is_plain_layer(node: Node) -> bool:
    """Whether it is a linear layer with a bias, without activation, pool or residual."""
    is_layer = node.op in LAYERS and len(node.inputs) == 3
    return is_layer and not node.attributes.get("pool") and not node.attributes.get("rotated")


def _rotation(node: Node, readers: Readers) -> Rotation | None:
    """The attributes of the rotation, and the nodes it replaces."""
    columns: dict[int, tuple[int, Node]] = {}  # start -> end and rope
    others: list[int] = []  # starts of columns that are not rotated
    found = readers.get(node.result.name, [])
    for reader in found:
        if reader is not None and reader.op == "axial_rope" and len(found) == 1:
            columns[0] = (width(node.result), reader)
        elif reader is not None and reader.op == "slice" and takes_columns(reader):
            start = int(str(reader.attributes["starts"][-1]))  # type: ignore[index]  # a tuple
            rope = _only_rope(reader, readers)
            if rope is None:
                others.append(start)
            else:
                columns[start] = (start + width(reader.result), rope)
        else:
            return None
    end = 0
    ropes: list[Node] = []
    while end in columns:
        end, rope = columns[end]
        ropes.append(rope)
    if not ropes or len(ropes) != len(columns) or min(others, default=end) < end:
        return None
    if any("pooled" in rope.attributes for rope in ropes):  # which no kernel has
        return None
    widths = {width(rope.result) // int(str(rope.attributes["heads"])) for rope in ropes}
    kinds = [tuple(rope.attributes[key] for key in _KIND) for rope in ropes]
    if len(widths) != 1 or any(kind != kinds[0] for kind in kinds):
        return None
    attributes = dict(zip(_KIND, kinds[0], strict=True))
    return attributes | {"rotated": end, "width": widths.pop()}, {r.result.name for r in ropes}


def _only_rope(node: Node, readers: Readers) -> Node | None:
    """The rotation that is the only reader of a slice of columns."""
    found = readers.get(node.result.name, [])
    rope = found[0] if len(found) == 1 else None
    return rope if rope is not None and rope.op == "axial_rope" else None
