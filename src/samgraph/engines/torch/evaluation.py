"""Graphs evaluated with torch tensors, with gradients where torch records them.

outputs = evaluate(graph, {**weights, "image": image})
outputs["embedding"].square().mean().backward()

A run gives the same bits each time. On a GPU the gradients of attention do so only after
`torch.use_deterministic_algorithms(True)`, which is cheap in bf16 and very slow in fp32 (memory
attention of SAM 2 tiny on an H200: 45 ms for 32, and 1511 ms for 36; 2026-11).
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch.utils.checkpoint import checkpoint as run_and_forget

from samgraph.engines.protocol import Precision
from samgraph.engines.torch.memory import device_is_full, is_out_of_memory
from samgraph.engines.torch.pieces import Piece, cut
from samgraph.engines.torch.plan import Step, plan
from samgraph.engines.torch.products import Rule
from samgraph.engines.torch.settings import plain_float32
from samgraph.engines.torch.tensors import TORCH_DTYPES, to_tensor
from samgraph.errors import EngineError, InputError
from samgraph.graph.binding import bind, check_lengths
from samgraph.graph.graph import Graph, Value

Tensors = Mapping[str, torch.Tensor]
_MOST_SIZES = 64


def evaluate(
    graph: Graph, values: Tensors, *, precision: Precision = "fp32", checkpoint: bool = False
) -> dict[str, torch.Tensor]:
    """Every output of a graph, given a tensor for every input and param, all on one device.

    `values` may hold more than the graph reads: the weights of a whole model. With `checkpoint`,
    gradients cost a second run of the nodes and far less memory. Use an `Evaluator` to run one
    graph many times.
    """
    return Evaluator(graph, precision)(values, checkpoint=checkpoint)


class Evaluator:
    """A graph to be evaluated many times; keeps its constants on each device it ran on."""

    def __init__(
        self,
        graph: Graph,
        precision: Precision = "fp32",
        kernels: Mapping[str, Rule] | None = None,
    ) -> None:
        self.graph, self.steps = graph, plan(graph, precision, kernels)
        self._read = (*graph.inputs, *graph.params)
        self._outputs = {value.name for _, value in graph.outputs}
        self._constants: dict[torch.device, dict[str, torch.Tensor]] = {}
        self._checked: set[tuple[int, ...]] = set()  # lengths that were checked
        self._sized_steps: list[Step] = []
        self._read_later: set[str] = set()
        self._sized: dict[tuple[tuple[str, int], ...], dict[str, torch.Tensor]] = {}

    def __call__(self, values: Tensors, *, checkpoint: bool = False) -> dict[str, torch.Tensor]:
        """Every output, as `evaluate` gives it."""
        device = self._check(values)
        bindings = self._bind(values)
        with plain_float32():
            return self.run(values, bindings, device, checkpoint=checkpoint)

    def run(
        self,
        values: Tensors,
        bindings: Mapping[str, int],
        device: torch.device,
        *,
        checkpoint: bool = False,
    ) -> dict[str, torch.Tensor]:
        """Every output of values that were checked before."""
        memory = {**self.constants(device), **values}
        if checkpoint and torch.is_grad_enabled():
            for piece in cut(self.steps, self._outputs, bindings):
                self._run_piece(piece, memory, bindings)
        else:
            self._walk(self.steps, bindings, memory)
        return {
            name: memory[value.name].to(TORCH_DTYPES[value.type.dtype])
            for name, value in self.graph.outputs
        }

    def precompute(self, weights: Tensors, device: torch.device) -> dict[str, torch.Tensor]:
        """Compute what depends on no input, and drop it from later runs; returns those tensors.

        What depends on the inputs' lengths only is left to `sized`.
        """
        memory = {**self.constants(device), **weights}
        made: dict[str, torch.Tensor] = {}
        later: list[Step] = []
        sized: set[str] = set()
        for step in self.steps:
            names = [value.name for value in step.node.inputs]
            if not all(name in memory or name in sized for name in names):
                later.append(step)
            elif step.symbolic or step.node.result.type.symbols or sized & set(names):
                sized.add(step.node.result.name)
                self._sized_steps.append(replace(step, done=()))
            else:
                replace(step, done=()).run(memory, {})
                name = step.node.result.name
                memory[name] = made[name] = memory[name].contiguous()
        self.steps = tuple(later)
        steps = (*later, *self._sized_steps)
        self._read_later = {v.name for step in later for v in step.node.inputs} | self._outputs
        read = {value.name for step in steps for value in step.node.inputs} | self._outputs
        return {name: tensor for name, tensor in made.items() if name in read}

    def sized(self, values: Tensors, bindings: Mapping[str, int], device: torch.device) -> Tensors:
        """What depends only on lengths: computed once per set of lengths, the latest kept."""
        key = tuple(bindings.items())
        if key not in self._sized:
            memory = {**self.constants(device), **values}
            self._walk(tuple(self._sized_steps), bindings, memory)
            names = {step.node.result.name for step in self._sized_steps} & self._read_later
            while len(self._sized) >= _MOST_SIZES:
                self._sized.pop(next(iter(self._sized)))
            self._sized[key] = {name: memory[name] for name in names}
        return self._sized[key]

    def constants(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The graph's constants, copied to a device once."""
        if device not in self._constants:
            with torch.inference_mode(False):  # they may be read with gradients later
                self._constants[device] = {
                    node.result.name: to_tensor(node.array(), device)
                    for node in self.graph
                    if node.op == "constant"
                }
        return self._constants[device]

    def _walk(
        self,
        steps: tuple[Step, ...],
        bindings: Mapping[str, int],
        memory: dict[str, torch.Tensor],
    ) -> None:
        for step in steps:
            try:
                step.run(memory, bindings)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise device_is_full(f"graph `{self.graph.name}`", error) from error
                raise EngineError(
                    f"torch could not run `{step.node.op}` of graph `{self.graph.name}`",
                    got=str(error).strip().split("\n")[0],
                ) from error

    def _run_piece(
        self, piece: Piece, memory: dict[str, torch.Tensor], bindings: Mapping[str, int]
    ) -> None:
        """Compute a piece without keeping what is inside it."""

        def work(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inside = dict(zip(piece.reads, tensors, strict=True))
            self._walk(piece.steps, bindings, inside)
            return tuple(inside[name] for name in piece.gives)

        read = [memory[name] for name in piece.reads]
        given = run_and_forget(work, *read, use_reentrant=False, preserve_rng_state=False)
        memory.update(zip(piece.gives, given, strict=True))
        for name in piece.done:
            del memory[name]

    def _check(self, values: Tensors) -> torch.device:
        """Names, dtypes and devices, and the shapes of params; gives the one device."""
        missing = [value.name for value in self._read if value.name not in values]
        if missing:
            raise InputError(
                f"graph `{self.graph.name}` needs {len(missing)} tensors that were not given",
                got=", ".join(missing[:3]),
            )
        for value in self._read:
            _check_tensor(value, values[value.name])
        for value in self.graph.params:
            if tuple(values[value.name].shape) != value.type.shape:
                raise _misfit(value, values[value.name], "shape")
        devices = {values[value.name].device for value in self._read}
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            raise InputError("the tensors are on different devices", got=names, expected="one")
        return devices.pop() if devices else torch.device("cpu")

    def _bind(self, values: Tensors) -> dict[str, int]:
        inputs = self.graph.inputs
        bindings = bind(inputs, {value.name: tuple(values[value.name].shape) for value in inputs})
        key = tuple(bindings.values())
        if key and key not in self._checked:
            check_lengths(self.graph, bindings)
            self._checked.add(key)
        return bindings


def _check_tensor(value: Value, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InputError(
            f"`{value.name}` is not a torch tensor", got=type(tensor).__name__, expected=value.type
        )
    if tensor.dtype != TORCH_DTYPES[value.type.dtype]:
        raise _misfit(value, tensor, "dtype")


def _misfit(value: Value, tensor: torch.Tensor, what: str) -> InputError:
    got = f"{tensor.dtype} {list(tensor.shape)}"
    return InputError(f"tensor `{value.name}` has the wrong {what}", got=got, expected=value.type)
