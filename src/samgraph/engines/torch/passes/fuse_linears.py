"""fuse_linears: a linear layer absorbs the norm before it and the addition after it.

    %0 = layer_norm(%x, %scale, %shift)
    %1 = linear(%0, %w, %b)                      %0 = mul(%w, %scale)
    %2 = add(%x, %1)                      =>     %1 = linear(%shift, %w, %b)
    return y=%2                                  %2 = fused_linear(%x, %0, %1, %x, eps=...)
                                                 return y=%2

Linear layers with neither become `fused_linear` too, which rounds its input itself.
The weights absorb the norm's scale and shift. A norm is absorbed only where linear layers alone
read it, an addition only where nothing else reads the layer. Reshapes between them that leave the
channels alone do not matter.
"""

import numpy as np

from samgraph.engines.torch.passes.layers import LAYERS, Readers, graph_readers, weight_values
from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter


def fuse_linears(graph: Graph) -> Graph:
    """First the norms, then the additions, then the remaining linear layers."""
    if not graph.has(*LAYERS):
        return graph
    return _fuse_others(_fuse_additions(_fuse_norms(graph)))


def _fuse_others(graph: Graph) -> Graph:
    known, rewriter = weight_values(graph), Rewriter(graph)
    for node in graph:
        plain = node.op == "linear" and node.attributes.get("activation", "none") != "sigmoid"
        if not plain or node.exact or node.result.name in known or node.inputs[0].type.rank < 2:
            rewriter.keep(node)
            continue
        inputs = [rewriter.new(value) for value in node.inputs]
        if len(inputs) == 2:
            zeros = np.zeros(int(str(inputs[1].type.shape[0])), np.float32)
            inputs.append(rewriter.constant(zeros, node.result.type.dtype))
        made = rewriter.emit("fused_linear", *inputs, exact=False, **node.attributes)
        rewriter.replace(node.result, made)
    return rewriter.finish()


def _fuse_norms(graph: Graph) -> Graph:
    known, readers = weight_values(graph), graph_readers(graph)
    norms = {
        node.result.name: node
        for node in graph
        if node.op == "layer_norm" and _read_by_layers(node.result, readers, known)
    }
    moved = {  # reshapes of norms
        node.result.name: node
        for node in graph
        if node.op == "reshape" and node.inputs[0].name in norms
    }
    rewriter = Rewriter(graph)
    for node in graph:
        source = node.inputs[0].name if node.inputs else ""
        flat = moved.get(source)
        norm = norms.get(flat.inputs[0].name if flat else source)
        if node.op in LAYERS and norm is not None:
            x = rewriter.new(norm.inputs[0])
            if flat is not None:
                x = rewriter.emit("reshape", x, shape=flat.attributes["shape"])
            rewriter.replace(node.result, _with_norm(rewriter, node, norm, x))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _read_by_layers(value: Value, readers: Readers, known: set[str], *, deep: bool = True) -> bool:
    """Whether linear layers with constant weights, and nothing else, read a value."""
    for reader in readers.get(value.name, [None]):
        if reader is None:
            return False
        if deep and reader.op == "reshape" and _keeps_channels(reader):
            if not _read_by_layers(reader.result, readers, known, deep=False):
                return False
            continue
        weights = all(weight.name in known for weight in reader.inputs[1:])
        plain = reader.op in LAYERS and weights and not reader.attributes.get("eps", 0.0)
        if not plain or len(reader.inputs) != 3 or reader.inputs[0] != value:
            return False
    return True


def _with_norm(rewriter: Rewriter, node: Node, norm: Node, x: Value) -> Value:
    scale, shift = (rewriter.new(value) for value in norm.inputs[1:])
    weight, bias = (rewriter.new(value) for value in node.inputs[1:])
    joined = rewriter.emit("linear", shift, weight, bias)
    scaled = rewriter.emit("mul", weight, scale)
    given = {**node.attributes, "eps": norm.attributes["eps"]}
    return rewriter.emit("fused_linear", x, scaled, joined, exact=node.exact, **given)


def _fuse_additions(graph: Graph) -> Graph:
    readers = graph_readers(graph)
    rewriter = Rewriter(graph)
    for node in graph:
        found = _layer_of(rewriter, node, readers) if node.op == "add" else None
        if found is None:
            rewriter.keep(node)
            continue
        layer, residual = found
        if residual.type != layer.result.type:
            residual = rewriter.emit("reshape", residual, shape=layer.result.type.shape)
        y = rewriter.emit(
            "fused_linear", *layer.inputs, residual, exact=layer.exact, **layer.attributes
        )
        if y.type != node.result.type:
            y = rewriter.emit("reshape", y, shape=node.result.type.shape)
        rewriter.replace(node.result, y)
    return rewriter.finish()


def _layer_of(rewriter: Rewriter, node: Node, readers: Readers) -> tuple[Node, Value] | None:
    """The linear layer that one side of an addition is, and the other side."""
    left, right = node.inputs
    for value, other in ((right, left), (left, right)):
        layer = rewriter.maker(rewriter.new(value))
        if len(readers[value.name]) != 1 or {value.type, other.type} != {node.result.type}:
            continue
        if layer is not None and layer.op == "reshape" and _keeps_channels(layer):
            layer = rewriter.maker(layer.inputs[0])
            if layer is None or len(readers.get(layer.result.name, [None])) > 1:
                continue
        ok = layer is not None and layer.op in LAYERS and len(layer.inputs) == 3
        if ok and layer is not None and not layer.attributes.get("rotated"):
            return layer, rewriter.new(other)
    return None


def _keeps_channels(node: Node) -> bool:
    """Whether a reshape leaves the last axis alone."""
    return node.result.type.shape[-1] == node.inputs[0].type.shape[-1]
