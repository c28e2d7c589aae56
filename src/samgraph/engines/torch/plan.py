"""The steps of a run, planned once: the rule of each node, and the dtypes it reads.

In bf16 and fp16 mode the products that are not marked exact read and give half precision. Their
results stay so through ops that move, select or add, until an op that needs the declared float32
reads them; then they are widened. Accuracy is lost in the products only, and half the bytes are
moved. What several products read is rounded once. In tf32 mode all values are float32.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from samgraph.engines.protocol import Precision
from samgraph.engines.torch.fused import FUSED
from samgraph.engines.torch.products import PRODUCTS, Rule
from samgraph.engines.torch.rules import RULES
from samgraph.engines.torch.tensors import TORCH_DTYPES
from samgraph.graph.dims import Expr
from samgraph.graph.graph import Graph, Node, Value, bind_attribute, dims_of
from samgraph.graph.types import DType

HALF: dict[Precision, DType] = {"bf16": "bf16", "fp16": "f16"}
# Ops that keep half precision; torch widens it where the other side is float32.
_FOLLOW = frozenset(
    (
        "add", "axial_rope", "concat", "expand", "gather", "gelu", "max_pool2d", "maximum",
        "minimum", "mul", "pad", "relu", "reshape", "slice", "sub", "tile", "transpose", "where",
    )
)  # fmt: skip
# Which inputs our kernels read in half precision; they round the others themselves, or need not.
_NARROW = {
    "bank_keys": (), "bank_values": (),
    "conv_norm": (1,), "enlarge_mask": (), "fused_linear": (1,), "fused_mlp": (1, 3),
    "offset_norm": (),
    "patch_embedding": (1,), "window_attention": (0, 1, 2),
}  # fmt: skip
# Kernels whose output dtype is chosen here.
_CHOOSES = ("bank_keys", "bank_values", "conv_norm", "enlarge_mask", "offset_norm")
_MOVES = ("reshape", "slice", "transpose")


@dataclass(frozen=True, slots=True)
class Step:
    """One node: what it reads, in which dtype (None: as it is), and what is not read after it."""

    node: Node
    rule: Rule
    dtypes: tuple[torch.dtype | None, ...]
    attributes: Mapping[str, Any]
    symbolic: bool  # whether attributes hold symbols
    done: tuple[str, ...]

    def run(self, memory: dict[str, torch.Tensor], bindings: Mapping[str, int]) -> None:
        """Compute the node from what is in memory, and put its result there."""
        arguments = [
            memory[value.name] if dtype is None else memory[value.name].to(dtype)
            for value, dtype in zip(self.node.inputs, self.dtypes, strict=True)
        ]
        attributes = self.attributes
        if self.symbolic:
            attributes = {key: bind_attribute(value, bindings) for key, value in attributes.items()}
        memory[self.node.result.name] = self.rule(*arguments, **attributes)
        for name in self.done:
            del memory[name]


def plan(
    graph: Graph, precision: Precision, kernels: Mapping[str, Rule] | None = None
) -> tuple[Step, ...]:
    """A step for every node but constants, in the order of the graph.

    `kernels` are rules that take precedence over the default rules, for nodes that are not exact.
    """
    nodes = _round_once([node for node in graph if node.op != "constant"], precision)
    kept = {value.name for _, value in graph.outputs}
    outputs = _output_values(graph)
    steps: list[Step] = []
    for node in reversed(nodes):
        names = dict.fromkeys(value.name for value in node.inputs)
        done = tuple(name for name in names if name not in kept)
        kept.update(names)
        rule = RULES.get(node.op) or FUSED[node.op]
        if kernels and not node.exact:
            rule = kernels.get(node.op, rule)
        attributes: Mapping[str, Any] = node.attributes
        if node.op == "fused_linear" and node.result.name in outputs:
            attributes = {**attributes, "dtype": torch.float32}
        elif node.op in _CHOOSES and precision in HALF:
            half = TORCH_DTYPES[HALF[precision]]
            kind = torch.float32 if node.result.name in outputs else half
            attributes = {**attributes, "dtype": kind}
        symbolic = any(
            isinstance(dim, Expr) for value in node.attributes.values() for dim in dims_of(value)
        )
        steps.append(Step(node, rule, _dtypes(node, precision), attributes, symbolic, done))
    return tuple(reversed(steps))


def gathered_inputs(graph: Graph) -> frozenset[str]:
    """The inputs that are tables: rows of them are gathered, and nothing else reads them."""
    tables = {value.name for value in graph.inputs if value.type.rank >= 2}
    tables -= {value.name for _, value in graph.outputs}
    for node in graph:
        rows = node.op in ("bank_keys", "bank_values")
        if node.op == "gather":
            rows = not node.attributes["axis"] and not node.attributes["batch"]
        tables -= {value.name for value in (node.inputs[1:] if rows else node.inputs)}
    return frozenset(tables)


def half_params(graph: Graph, steps: Iterable[Step]) -> dict[str, torch.dtype]:
    """The params that are read in half precision only, and in which dtype."""
    half: dict[str, torch.dtype] = {}
    whole = {value.name for _, value in graph.outputs}
    for step in steps:
        for value, dtype in zip(step.node.inputs, step.dtypes, strict=True):
            if dtype in (torch.bfloat16, torch.float16):
                half[value.name] = dtype
            else:
                whole.add(value.name)
    return {
        value.name: half[value.name]
        for value in graph.params
        if value.type.dtype == "f32" and value.name in half and value.name not in whole
    }


def _output_values(graph: Graph) -> set[str]:
    """Values that are float32 outputs, as they are or moved: rounding them saves nothing."""
    outputs = {value.name for _, value in graph.outputs}
    for node in reversed(graph.nodes):
        if node.op in _MOVES and node.result.name in outputs:
            outputs.add(node.inputs[0].name)
    return outputs


def _round_once(nodes: list[Node], precision: Precision) -> list[Node]:
    """The nodes, with a cast of its own for what several of them read in half precision."""
    if precision not in HALF:
        return nodes
    half, reads = HALF[precision], Counter[str]()
    made = {node.result.name for node in nodes}
    for node in nodes:
        read = {
            value.name
            for value, dtype in zip(node.inputs, _dtypes(node, precision), strict=True)
            if dtype == TORCH_DTYPES[half] and value.type.dtype == "f32"
        }
        reads.update(read & made)
    rounded: dict[str, Value] = {}
    result: list[Node] = []
    for node in nodes:
        inputs = list(node.inputs)
        for index, dtype in enumerate(_dtypes(node, precision)):
            value = inputs[index]
            if dtype != TORCH_DTYPES[half] or reads[value.name] < 2:
                continue
            if value.name not in rounded:
                rounded[value.name] = Value(f"{value.name}~{half}", value.type)
                result.append(Node("cast", (value,), {"dtype": half}, rounded[value.name], True))
            inputs[index] = rounded[value.name]
        same = tuple(inputs) == node.inputs
        result.append(
            node if same else Node(node.op, tuple(inputs), node.attributes, node.result, node.exact)
        )
    return result


def _dtypes(node: Node, precision: Precision) -> tuple[torch.dtype | None, ...]:
    """The dtype in which each input is read."""
    if precision not in HALF or node.op == "cast" or (node.op in _FOLLOW and not node.exact):
        return (None,) * len(node.inputs)
    half = TORCH_DTYPES[HALF[precision]]
    if node.op in _NARROW and not node.exact:
        narrow = _NARROW[node.op]
        return tuple(half if index in narrow else None for index in range(len(node.inputs)))
    declared = [value.type.dtype for value in node.inputs]
    if node.op in PRODUCTS and not node.exact:
        return tuple(half if dtype == "f32" else TORCH_DTYPES[dtype] for dtype in declared)
    return tuple(TORCH_DTYPES[dtype] for dtype in declared)
