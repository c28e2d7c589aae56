"""keep_narrow_depthwise_exact: in bf16, a strided depthwise convolution to one column is exact.

    %0 = conv2d(%x, %w, stride=(1,2), groups=C) [B,C,H,1]    =>    %0 = exact conv2d(...)
    return y=%0                                                    return y=%0

Around a fault of OpenVINO, whose bf16 kernel gives garbage there (2026.4): exact nodes run in
float32. Such a convolution is nowhere in SAM 2. In bf16 only.
"""

from dataclasses import replace

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter, rewrite


def keep_narrow_depthwise_exact(graph: Graph) -> Graph:
    """Mark each such convolution."""
    found = {node.result.name for node in graph if _is_narrow(node)}
    return rewrite(graph, found, _exact) if found else graph


def _is_narrow(node: Node) -> bool:
    if node.op != "conv2d" or node.exact or node.result.type.shape[3] != 1:
        return False
    depthwise = node.integer("groups") > 1 and node.inputs[1].type.shape[1] == 1
    return depthwise and node.integers("stride")[1] > 1


def _exact(rewriter: Rewriter, node: Node) -> Value:
    return rewriter.keep(replace(node, exact=True))
