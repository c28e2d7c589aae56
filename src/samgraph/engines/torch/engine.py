"""The engine: graphs with weights become programs that run torch tensors without gradients."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from samgraph.engines.protocol import Decomposition, EngineOptions, MemoryUsage
from samgraph.engines.torch.buffers import TorchBuffers
from samgraph.engines.torch.evaluation import Evaluator
from samgraph.engines.torch.plan import halved_params
from samgraph.engines.torch.settings import plain_float32, use_threads
from samgraph.engines.torch.tensors import TORCH_DTYPES, to_tensor
from samgraph.errors import EngineError
from samgraph.graph.binding import bind
from samgraph.graph.graph import Graph
from samgraph.graph.types import Array, DType

Device = Literal["cpu", "cuda"]


class TorchProgram:
    """A graph with its weights on a device."""

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, Array],
        device: torch.device,
        options: EngineOptions,
    ) -> None:
        self._evaluator = Evaluator(graph, options.precision)
        self._device, self._threads = device, options.threads
        halved = halved_params(graph, self._evaluator.steps)
        self._weights = {
            value.name: _weight(weights[value.name], device, value.name in halved)
            for value in graph.params
        }

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Named inputs to named outputs."""
        graph, device = self._evaluator.graph, self._device
        bindings = bind(graph.inputs, {name: array.shape for name, array in inputs.items()})
        threads = use_threads(self._threads) if device.type == "cpu" else nullcontext()
        with torch.no_grad(), plain_float32(), threads:
            found = self._evaluator.run({**self._weights, **inputs}, bindings, device)
        return self._own(found, inputs)

    def _own(
        self, found: dict[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Outputs that share no memory with weights, constants, inputs or each other."""
        constants = self._evaluator.constants(self._device).values()
        taken = {x.untyped_storage().data_ptr() for x in (*self._weights.values(), *constants)}
        taken |= {x.untyped_storage().data_ptr() for x in inputs.values()}
        own: dict[str, torch.Tensor] = {}
        for name, tensor in found.items():
            place = tensor.untyped_storage().data_ptr()
            own[name] = tensor.clone() if place in taken else tensor
            taken.add(place)
        return own

    def memory(self) -> MemoryUsage:
        """The weights, on whichever device; nothing is compiled."""
        return MemoryUsage(sum(tensor.nbytes for tensor in self._weights.values()), 0)

    def export(self) -> bytes | None:
        """Nothing to keep."""
        return None


@dataclass(frozen=True, slots=True)
class TorchEngine:
    """Torch on the CPU or on one CUDA GPU: every op, every dtype."""

    device: Device = "cpu"
    name: str = "torch"
    dtypes: frozenset[DType] = frozenset(TORCH_DTYPES)

    @property
    def lacks(self) -> Mapping[str, Decomposition]:
        """Nothing."""
        return {}

    @property
    def buffers(self) -> TorchBuffers:
        """Tensors on the device."""
        return TorchBuffers(torch.device(self.device))

    @property
    def storage(self) -> frozenset[DType]:
        """None beside those it computes in."""
        return frozenset()

    @property
    def attention_tokens(self) -> int | None:
        """A GPU is filled by many objects; a CPU by one at 1024 pixels."""
        return None if self.device == "cuda" else 1 << 15

    @property
    def objects_at_once(self) -> int:
        """All of them on a GPU, within its memory."""
        return 32 if self.device == "cuda" else 4

    def version(self) -> str:
        """Torch's version, and where it runs."""
        place = torch.cuda.get_device_name() if self.device == "cuda" else "cpu"
        return f"{torch.__version__}|{place}"

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> TorchProgram:
        """Bring the weights to the device and work out the steps."""
        try:
            return TorchProgram(graph, weights, torch.device(self.device), options)
        except RuntimeError as error:
            text = f"torch could not bring graph `{graph.name}` to `{self.device}`"
            raise EngineError(text, got=str(error).strip().split("\n")[0]) from error

    def restore(self, data: memoryview, options: EngineOptions) -> TorchProgram:
        """Never called: there is nothing to restore."""
        raise EngineError("the torch engine keeps nothing in a cache")


def engine_on(device: Device) -> TorchEngine:
    """The engine for a device, which must be there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            "device `cuda` cannot be used here",
            got=f"torch {torch.__version__}, which sees no CUDA device",
            hint='use device="cpu", or install a torch built for CUDA',
        )
    return TorchEngine(device)


def _weight(array: Array, device: torch.device, halved: bool) -> torch.Tensor:
    tensor = to_tensor(array, device)
    return tensor.to(torch.bfloat16) if halved else tensor


engine = TorchEngine()
