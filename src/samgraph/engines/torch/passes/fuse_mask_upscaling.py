"""fuse_mask_upscaling: the end of the mask decoder becomes one op.

    %0 = add(reshape(linear(%image)), %feat_s1 as cells)
    %1 = gelu(layer_norm(%0))
    %2 = gelu(add(reshape(linear(%1)), %feat_s0 as cells))    =>    %0 = upscale_masks(%image, ...)
    %3 = matmul(%hyper_in, transpose(%2))                           return masks=%0
    return masks=reshape(transpose(reshape(%3)))

The only tensor of the masks' size that is written is the masks. Feature maps are read in place.
"""

from dataclasses import dataclass

from samgraph.engines.torch.passes.layers import Search
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter

_ROWS = (0, 1, 2, 4, 6, 3, 5, 7)  # [N, m, E, E, 2, 2, 2, 2] -> rows of pixels
_CELLS = {1: (0, 1, 3, 2, 4), 2: (0, 1, 4, 2, 5, 3, 6)}  # rows of pixels -> cells, channels-last


@dataclass(frozen=True, slots=True)
class _Match:
    image: Value
    dc1: Node
    feat_s1: Value
    norm: Node
    dc2: Node
    feat_s0: Value
    hyper_in: Value


def fuse_mask_upscaling(graph: Graph) -> Graph:
    """Rewrite the mask decoder's upscaling."""
    if not graph.has("gelu"):
        return graph
    search, rewriter = Search(graph), Rewriter(graph)
    for node in graph:
        match = _match(search, node) if node.op == "reshape" else None
        if match is None:
            rewriter.keep(node)
            continue
        values = (
            match.image, *match.dc1.inputs[1:], match.feat_s1, *match.norm.inputs[1:],
            *match.dc2.inputs[1:], match.feat_s0, match.hyper_in,
        )  # fmt: skip
        new = [rewriter.new(value) for value in values]
        eps = match.norm.attributes["eps"]
        rewriter.replace(node.result, rewriter.emit("upscale_masks", *new, eps=eps))
    return rewriter.finish()


def _match(search: Search, node: Node) -> _Match | None:
    moved = search.only(node.inputs[0], "transpose")
    split = search.only(moved.inputs[0], "reshape") if moved else None
    product = search.only(split.inputs[0], "matmul") if split else None
    if moved is None or moved.attributes["axes"] != _ROWS or product is None:
        return None
    across = search.only(product.inputs[1], "transpose")
    activated = search.only(across.inputs[0], "gelu") if across else None
    second = _upscaled(search, activated.inputs[0]) if activated else None
    if across is None or across.attributes["axes"] != (0, 2, 1) or second is None:
        return None
    dc2, feat_s0 = second
    before = search.only(dc2.inputs[0], "gelu")
    norm = search.only(before.inputs[0], "layer_norm") if before else None
    first = _upscaled(search, norm.inputs[0]) if norm else None
    if norm is None or first is None:
        return None
    dc1, feat_s1 = first
    image = dc1.inputs[0]
    if image.type.rank != 3 or not isinstance(image.type.shape[1], int):
        return None
    maps = (_as_map(search, feat_s1, 1), dc2, _as_map(search, feat_s0, 2))
    return _Match(image, dc1, maps[0], norm, maps[1], maps[2], product.inputs[0])


def _upscaled(search: Search, value: Value) -> tuple[Node, Value] | None:
    """The linear layer that makes each cell four, and the feature map that is added."""
    added = search.only(value, "add")
    split = search.only(added.inputs[0], "reshape") if added else None
    layer = search.only(split.inputs[0], "linear") if split else None
    if added is None or layer is None or len(layer.inputs) != 3 or layer.exact:
        return None
    plain = layer.attributes.get("activation", "none") == "none"
    return (layer, added.inputs[1]) if plain else None


def _as_map(search: Search, value: Value, times: int) -> Value:
    """The map [M, A, H, H] that a list of cells was made from; else the list itself."""
    flat = search.maker(value, "reshape")
    moved = search.maker(flat.inputs[0], "transpose") if flat else None
    split = search.maker(moved.inputs[0], "reshape") if moved else None
    last = search.maker(split.inputs[0], "transpose") if split else None
    if moved is None or last is None or last.attributes["axes"] != (0, 2, 3, 1):
        return value
    axes = moved.attributes["axes"]
    wanted = _CELLS[times]
    ends = ((*wanted, -1), (*wanted, len(wanted)))
    return last.inputs[0] if axes in ends else value
