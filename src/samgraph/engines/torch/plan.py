"""The steps of a run, worked out once: the rule of each node, and the dtypes it reads.

In bf16 mode the products that are not marked exact read and give bf16. Their results stay bf16
through ops that move, choose or add, until an op that wants the declared float32 reads them; then
they are widened. So no accuracy is lost but in the products, and half the memory is moved.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from samgraph.engines.protocol import Precision
from samgraph.engines.torch.products import PRODUCTS, Rule
from samgraph.engines.torch.rules import RULES
from samgraph.engines.torch.tensors import TORCH_DTYPES
from samgraph.graph.dims import Expr
from samgraph.graph.graph import Graph, Node, bind_attribute, dims_of

# What a bf16 value passes through as it is; torch widens it where the other side is float32.
_FOLLOW = frozenset(
    (
        "add", "axial_rope", "concat", "expand", "gather", "gelu", "max_pool2d", "maximum",
        "minimum", "mul", "pad", "relu", "reshape", "slice", "sub", "tile", "transpose", "where",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One node: what it reads, in which dtype (None: as it is), and what nobody reads after it."""

    node: Node
    rule: Rule
    dtypes: tuple[torch.dtype | None, ...]
    attributes: Mapping[str, Any] | None  # None where they hold symbols
    done: tuple[str, ...]

    def run(self, memory: dict[str, torch.Tensor], bindings: Mapping[str, int]) -> None:
        """Compute the node from what is in memory, and put its result there."""
        arguments = [
            memory[value.name] if dtype is None else memory[value.name].to(dtype)
            for value, dtype in zip(self.node.inputs, self.dtypes, strict=True)
        ]
        attributes = self.attributes
        if attributes is None:
            given = self.node.attributes
            attributes = {key: bind_attribute(value, bindings) for key, value in given.items()}
        memory[self.node.result.name] = self.rule(*arguments, **attributes)
        for name in self.done:
            del memory[name]


def plan(graph: Graph, precision: Precision) -> tuple[Step, ...]:
    """A step for every node but constants, in the order of the graph."""
    nodes = [node for node in graph if node.op != "constant"]
    kept = {value.name for _, value in graph.outputs}
    steps: list[Step] = []
    for node in reversed(nodes):
        names = dict.fromkeys(value.name for value in node.inputs)
        done = tuple(name for name in names if name not in kept)
        kept.update(names)
        symbolic = any(
            isinstance(dim, Expr) for value in node.attributes.values() for dim in dims_of(value)
        )
        attributes = None if symbolic else node.attributes
        steps.append(Step(node, RULES[node.op], _dtypes(node, precision), attributes, done))
    return tuple(reversed(steps))


def halved_params(graph: Graph, steps: Iterable[Step]) -> set[str]:
    """The params that are read in bf16 only."""
    halved: set[str] = set()
    whole = {value.name for _, value in graph.outputs}
    for step in steps:
        for value, dtype in zip(step.node.inputs, step.dtypes, strict=True):
            (halved if dtype == torch.bfloat16 else whole).add(value.name)
    return {value.name for value in graph.params if value.type.dtype == "f32"} & halved - whole


def _dtypes(node: Node, precision: Precision) -> tuple[torch.dtype | None, ...]:
    """The dtype in which each input is read."""
    if precision == "fp32" or (node.op in _FOLLOW and not node.exact):
        return (None,) * len(node.inputs)
    declared = [value.type.dtype for value in node.inputs]
    if node.op in PRODUCTS and not node.exact:
        return tuple(TORCH_DTYPES["bf16" if dtype == "f32" else dtype] for dtype in declared)
    return tuple(TORCH_DTYPES[dtype] for dtype in declared)
