"""The engine: graphs with weights become programs that run torch tensors without gradients."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from samgraph.engines.devices import Device
from samgraph.engines.protocol import (
    CPU_ATTENTION_TOKENS,
    CPU_OBJECTS_AT_ONCE,
    Decision,
    DeviceInfo,
    EngineOptions,
    MemoryUsage,
)
from samgraph.engines.torch.buffers import TorchBuffers
from samgraph.engines.torch.cuda_graphs import GraphRunner
from samgraph.engines.torch.evaluation import Evaluator
from samgraph.engines.torch.finding import check_device, found_devices, is_rocm
from samgraph.engines.torch.fused import FUSED
from samgraph.engines.torch.kernels import kernel_rules
from samgraph.engines.torch.memory import device_is_full
from samgraph.engines.torch.passes import FUSED_PASSES
from samgraph.engines.torch.plan import gathered_inputs, half_params
from samgraph.engines.torch.products import PRODUCTS
from samgraph.engines.torch.rules import RULES
from samgraph.engines.torch.settings import fast_float32, plain_float32, use_threads
from samgraph.engines.torch.tensors import TORCH_DTYPES
from samgraph.engines.torch.weights import Weights
from samgraph.errors import DeviceMemoryError, EngineError
from samgraph.graph.binding import bind
from samgraph.graph.graph import Graph, Node
from samgraph.graph.types import Array, DType
from samgraph.passes.merge_projections import merge_projections
from samgraph.passes.pipeline import COMMON, Precision, Step

_PASSES = (*COMMON, Step(merge_projections))


class TorchProgram:
    """A graph with its weights on a device. On CUDA it is replayed: see `cuda_graphs.py`."""

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, Array],
        device: torch.device,
        options: EngineOptions,
    ) -> None:
        is_fused = device.type == "cuda" and options.precision != "fp32"
        kernels = kernel_rules() if is_fused else None
        self._evaluator = Evaluator(graph, options.precision, kernels)
        self._device, self._options = device, options
        half = half_params(graph, self._evaluator.steps)
        arrays = {value.name: weights[value.name] for value in graph.params}
        self._weights = Weights(arrays, half, device)
        self._fixed = self._weights.tensors
        self._replay = None
        self._is_new = kernels is not None  # not run yet: its kernels may have to be compiled
        if device.type == "cuda":
            with torch.no_grad(), plain_float32():
                precomputed = self._evaluator.precompute(self._fixed, device)
            self._fixed = {**self._fixed, **precomputed}
            tables = gathered_inputs(graph) if kernels else frozenset[str]()
            self._replay = GraphRunner(self._compute, tables, device)

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Named inputs to named outputs."""
        while True:
            try:
                return self._run(inputs)
            except (torch.OutOfMemoryError, DeviceMemoryError) as error:
                reason = error.got if isinstance(error, DeviceMemoryError) else error
                full = device_is_full(f"graph `{self._evaluator.graph.name}`", reason)
            # Here the error is gone, and with it all that was computed up to it.
            if self._replay is None or not self._replay.release():
                raise full

    def _run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The same, as often as there is memory for it."""
        if self._replay is None:
            return self._compute(inputs)
        if self._is_new:
            self._is_new = False
            self._compile_kernels(inputs)
        return self._replay.run(dict(inputs))

    def _compile_kernels(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Compile the kernels of a first run in parallel: seconds instead of tens of seconds."""
        from samgraph.engines.torch.kernels.launch import compile_only

        shapes = {name: tuple(tensor.shape) for name, tensor in inputs.items()}
        with torch.no_grad(), plain_float32():  # what is cached for these lengths must be exact
            bindings = bind(self._evaluator.graph.inputs, shapes)
            self._evaluator.sized(self._fixed, bindings, self._device)
        with compile_only():
            self._compute(inputs)

    def _compute(self, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Named inputs to named outputs, kernel by kernel."""
        graph, device = self._evaluator.graph, self._device
        shapes = {name: tuple(tensor.shape) for name, tensor in inputs.items()}
        bindings = bind(graph.inputs, shapes)
        fast = self._options.precision == "tf32"
        threads = use_threads(self._options.threads) if device.type == "cpu" else nullcontext()
        with torch.no_grad(), fast_float32() if fast else plain_float32(), threads:
            sized = self._evaluator.sized(self._fixed, bindings, device)
            found = self._evaluator.run({**self._fixed, **sized, **inputs}, bindings, device)
        return self._own(found, inputs, bindings)

    def _own(
        self,
        found: dict[str, torch.Tensor],
        inputs: Mapping[str, Any],
        bindings: Mapping[str, int],
    ) -> dict[str, torch.Tensor]:
        """Outputs that share no memory with weights, constants, inputs or each other."""
        constants = self._evaluator.constants(self._device).values()
        sized = self._evaluator.sized(self._fixed, bindings, self._device).values()
        read = (*self._fixed.values(), *sized, *constants, *inputs.values())
        taken = {x.untyped_storage().data_ptr() for x in read if isinstance(x, torch.Tensor)}
        own: dict[str, torch.Tensor] = {}
        for name, tensor in found.items():
            address = tensor.untyped_storage().data_ptr()
            own[name] = tensor.clone() if address in taken else tensor
            taken.add(address)
        return own

    def memory(self) -> MemoryUsage:
        """The weights, on whichever device, and what captured graphs hold."""
        return MemoryUsage(self._weights.bytes, 0)

    def export(self) -> bytes | None:
        """None: there is nothing to cache."""
        return None


@dataclass(frozen=True, slots=True)
class TorchEngine:
    """Torch on the CPU or on one CUDA GPU: every op, every dtype.

    `fuses` says whether graphs get the engine's own ops: on a GPU, where they have kernels.
    """

    device: Device = Device("cpu")  # noqa: RUF009  (frozen)
    fuses: bool = False
    name: str = "torch"
    folds_params: bool = True
    caches_programs: bool = False
    dtypes: frozenset[DType] = frozenset(TORCH_DTYPES)

    @property
    def ops(self) -> frozenset[str]:
        """The ops of all engines, and its own."""
        return frozenset((*RULES, "constant", *(FUSED if self.fuses else ())))

    @property
    def passes(self) -> tuple[Step, ...]:
        """The shared passes; those that fuse come after, except in plain fp32."""
        return (*_PASSES, *FUSED_PASSES) if self.fuses else _PASSES

    @property
    def devices(self) -> Mapping[str, tuple[Precision, ...]]:
        """A GPU, or the CPU."""
        return {
            "cuda": ("bf16", "fp16", "tf32", "fp32"),
            "cpu": ("fp32", "bf16"),
            "mps": ("fp32",),
            "xpu": ("fp32", "bf16", "fp16"),
        }

    @property
    def exact_precision(self) -> Precision:
        """On a GPU TF32, which has 10 bits of fraction to the 7 of bf16."""
        return "tf32" if self.device.kind == "cuda" else "fp32"

    def on(self, device: Device) -> "TorchEngine":
        """The engine for a device, which must be there."""
        check_device(device)
        return TorchEngine(device, fuses=device.kind == "cuda")

    def found(self, memory: Path | None) -> tuple[DeviceInfo, ...]:
        """The GPUs that torch sees."""
        return tuple(
            replace(info, precisions=self.devices[info.device.kind]) for info in found_devices()
        )

    def decide(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """The options as requested; on a GPU with one thread."""
        if self.device.kind == "cuda":
            why = "ROCm, untested" if is_rocm() else None
            return Decision(replace(wanted, threads=1), why)
        if self.device.kind != "cpu":
            return Decision(replace(wanted, threads=1), "untested")
        rounded = "products rounded to bf16 but computed in fp32, as on a GPU and no faster"
        return Decision(wanted, rounded if wanted.precision == "bf16" else None)

    def precision_of(self, node: Node, precision: Precision) -> Precision:
        """Products alone are computed in less than fp32."""
        is_product = node.op in PRODUCTS or node.op in FUSED
        return precision if is_product and not node.exact else "fp32"

    @property
    def buffers(self) -> TorchBuffers:
        """Tensors on the device."""
        return TorchBuffers(torch.device(str(self.device)))

    @property
    def storage(self) -> frozenset[DType]:
        """None but the dtypes it computes in."""
        return frozenset()

    @property
    def attention_tokens(self) -> int | None:
        """A GPU is filled by many objects; a CPU by one at 1024 pixels."""
        return None if self.device.kind == "cuda" else CPU_ATTENTION_TOKENS

    @property
    def objects_at_once(self) -> int:
        """All of them on a GPU, within its memory."""
        return 32 if self.device.kind == "cuda" else CPU_OBJECTS_AT_ONCE

    def version(self) -> str:
        """Torch's version, and the device."""
        name = (
            torch.cuda.get_device_name(str(self.device))
            if self.device.kind == "cuda"
            else self.device.kind
        )
        return f"{torch.__version__}|{name}"

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> TorchProgram:
        """Upload the weights and plan the steps."""
        try:
            return TorchProgram(graph, weights, torch.device(str(self.device)), options)
        except torch.OutOfMemoryError as error:
            raise device_is_full(f"the weights of graph `{graph.name}`", error) from error
        except RuntimeError as error:
            text = f"torch could not load graph `{graph.name}` on `{self.device}`"
            raise EngineError(text, got=str(error).strip().split("\n")[0]) from error

    def restore(self, data: memoryview, options: EngineOptions) -> TorchProgram:
        """Never called: there is nothing to restore."""
        raise EngineError("the torch engine keeps nothing in a cache")


engine = TorchEngine()
