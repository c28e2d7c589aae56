"""attention_to_flash: attention over many tokens runs in the native kernel.

    %0 = attention(%q, %k, %v)     =>    %0 = flash_attention(%q, %k, %v)

The same numbers up to the order of sums. An engine that compiles whole graphs is interrupted here,
so only where queries and keys are 1,024 and more, and only where a profile asks for it: on an AMD
EPYC OpenVINO's own attention is as fast, and needs 270 MB less in the image encoder.
"""

from samgraph.graph.graph import Graph, Node, Value
from samgraph.passes.rewriter import Rewriter, rewrite

FEWEST = 1024


def attention_to_flash(graph: Graph) -> Graph:
    """Rename every large attention."""
    found = {node.result.name for node in graph if node.op == "attention" and _is_large(node)}
    return rewrite(graph, found, _renamed) if found else graph


def _is_large(node: Node) -> bool:
    lengths = [value.type.shape[-2] for value in node.inputs[:2]]
    if node.result.type.dtype == "bf16":  # the engine's own products are faster
        return False
    return all(isinstance(n, int) and n >= FEWEST for n in lengths)


def _renamed(rewriter: Rewriter, node: Node) -> Value:
    inputs = [rewriter.new(value) for value in node.inputs]
    return rewriter.emit("flash_attention", *inputs, exact=node.exact, **node.attributes)
