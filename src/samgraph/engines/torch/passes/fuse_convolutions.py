"""fuse_convolutions: convolutions absorb what follows them.

    %0 = conv2d(%x, %w, %b)
    %1 = layer_norm_2d(%0, %scale, %shift)    =>    %0 = conv_norm(%x, %w, %b, %scale, %shift)
    return y=gelu(%1)                               return y=%0

    %0 = transpose(conv2d(%image, %w, %b))    =>    %0 = patch_embedding(%image, %w, %b, %positions)
    return y=add(%0, %positions)                    return y=%0

    %0 = resize(add(mul(%mask, %a), %b))      =>    %0 = enlarge_mask(%mask, %a, %b)
    return y=add(mul(sigmoid(%0), 20), -10)         return y=%0

The weights are put in the order in which the kernels read them.
"""

from samgraph.engines.torch.ops.patch_embedding import ROW
from samgraph.engines.torch.passes.layers import Search, width
from samgraph.graph.graph import Graph, Literal, Node, Value
from samgraph.passes.rewriter import Rewriter

_MOST_COLOURS = 4
_CHANNELS_LAST = (0, 2, 3, 1)


def fuse_convolutions(graph: Graph) -> Graph:
    """Rewrite norms, activations and additions after convolutions."""
    if not graph.has("conv2d"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    for node in graph:
        made = None
        if node.op in ("gelu", "layer_norm_2d"):
            made = _conv_norm(search, rewriter, node)
        elif node.op == "add":
            made = _patches(search, rewriter, node) or _enlarged(search, rewriter, node)
        if made is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node.result, made)
    return rewriter.finish()


def _conv_norm(search: Search, rewriter: Rewriter, node: Node) -> Value | None:
    norm: Node | None = node
    if node.op == "gelu":
        norm = search.only(node.inputs[0], "layer_norm_2d")
    elif _only_reader_is_gelu(search, node):
        return None  # absorbed with the activation
    conv = search.only(norm.inputs[0], "conv2d") if norm else None
    shape = _square(search, conv) if conv else None
    if norm is None or conv is None or shape is None:
        return None
    x, C = conv.inputs[0], width(conv.inputs[1], 0)
    kernel, stride, padding, groups = shape
    depthwise = groups > 1
    if depthwise and (groups != C or groups != width(x, 1) or stride != 1):
        return None
    if depthwise and 2 * padding + 1 != kernel:
        return None
    taps = rewriter.emit("transpose", rewriter.new(conv.inputs[1]), axes=_CHANNELS_LAST)
    columns = kernel * kernel * width(conv.inputs[1], 1)
    weight = rewriter.emit("reshape", taps, shape=(C, columns))
    if depthwise:
        weight = rewriter.emit("transpose", weight, axes=(1, 0))
    others = [rewriter.new(value) for value in (conv.inputs[2], *norm.inputs[1:])]
    return rewriter.emit(
        "conv_norm", rewriter.new(x), weight, *others, kernel=kernel, stride=stride,
        padding=padding, depthwise=depthwise, eps=norm.attributes["eps"],
        activation="gelu" if node.op == "gelu" else "none",
    )  # fmt: skip


def _only_reader_is_gelu(search: Search, node: Node) -> bool:
    readers = search.readers.get(node.result.name, [])
    return len(readers) == 1 and readers[0] is not None and readers[0].op == "gelu"


def _square(search: Search, conv: Node) -> tuple[int, int, int, int] | None:
    """Kernel, stride, padding and groups of a square convolution with constant weights."""
    if len(conv.inputs) != 3 or conv.exact:
        return None
    if any(value.name not in search.weights for value in conv.inputs[1:]):
        return None
    given = conv.attributes
    pairs = (conv.inputs[1].type.shape[2:], given["stride"], given["padding"])
    sides = [_both(pair) for pair in pairs]
    if None in sides:
        return None
    kernel, stride, padding = (int(str(side)) for side in sides)
    return kernel, stride, padding, int(str(given["groups"]))


def _both(pair: object) -> object:
    """The element of a pair of equal numbers; else None."""
    return pair[0] if isinstance(pair, tuple) and pair[0] == pair[1] else None


def _patches(search: Search, rewriter: Rewriter, node: Node) -> Value | None:
    moved = search.only(node.inputs[0], "transpose")
    conv = search.only(moved.inputs[0], "conv2d") if moved else None
    shape = _square(search, conv) if conv else None
    positions = node.inputs[1]
    if moved is None or conv is None or shape is None or positions.name not in search.weights:
        return None
    kernel, stride, padding, groups = shape
    colours = width(conv.inputs[0], 1)
    fits = kernel <= ROW and groups == 1 and colours <= _MOST_COLOURS
    whole = positions.type.shape == (1, *node.result.type.shape[1:])
    if not fits or not whole or moved.attributes["axes"] != _CHANNELS_LAST:
        return None
    before = (0, 0, 0, ROW - kernel)
    weight = rewriter.new(conv.inputs[1])
    weight = rewriter.emit("pad", weight, before=before, after=(0, 0, 0, 0), value=0.0)
    rows = (width(conv.inputs[1], 0), colours * kernel * ROW)
    weight = rewriter.emit("reshape", weight, shape=rows)
    image, bias, added = (rewriter.new(v) for v in (conv.inputs[0], conv.inputs[2], positions))
    return rewriter.emit(
        "patch_embedding", image, weight, bias, added, kernel=kernel, stride=stride, padding=padding
    )


def _enlarged(search: Search, rewriter: Rewriter, node: Node) -> Value | None:
    scaled = search.only(node.inputs[0], "mul")
    sigmoid = search.only(scaled.inputs[0], "sigmoid") if scaled else None
    resize = search.only(sigmoid.inputs[0], "resize") if sigmoid else None
    moved = search.only(resize.inputs[0], "add") if resize else None
    gained = search.only(moved.inputs[0], "mul") if moved else None
    if scaled is None or resize is None or moved is None or gained is None:
        return None
    shift, scale = _number(search, node.inputs[1]), _number(search, scaled.inputs[1])
    plain = resize.attributes["how"] == "bilinear" and not resize.attributes["antialias"]
    mask, gain, offset = gained.inputs[0], gained.inputs[1], moved.inputs[1]
    shape = (mask.type.shape[0], 1, 1, 1)
    fits = mask.type.rank == 4 and mask.type.shape[1] == 1
    if not fits or gain.type.shape != shape or offset.type.shape != shape or not plain:
        return None
    if shift is None or scale is None:
        return None
    new = [rewriter.new(value) for value in (mask, gain, offset)]
    size = resize.attributes["size"]
    return rewriter.emit("enlarge_mask", *new, size=size, scale=scale, shift=shift)


def _number(search: Search, value: Value) -> float | None:
    """The value of a constant scalar."""
    node = search.maker(value, "constant")
    literal = node.attributes["value"] if node else None
    if not isinstance(literal, Literal) or literal.array.size != 1:
        return None
    return float(literal.array.reshape(()))
