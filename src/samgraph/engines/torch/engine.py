"""The engine: graphs with weights become programs that run torch tensors without gradients."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from samgraph.engines.devices import Device
from samgraph.engines.protocol import Decision, EngineOptions, MemoryUsage
from samgraph.engines.torch.buffers import TorchBuffers
from samgraph.engines.torch.evaluation import Evaluator
from samgraph.engines.torch.plan import halved_params
from samgraph.engines.torch.products import PRODUCTS
from samgraph.engines.torch.rules import RULES
from samgraph.engines.torch.settings import plain_float32, use_threads
from samgraph.engines.torch.tensors import TORCH_DTYPES, to_tensor
from samgraph.errors import EngineError
from samgraph.graph.binding import bind
from samgraph.graph.graph import Graph, Node
from samgraph.graph.types import Array, DType
from samgraph.passes.merge_projections import merge_projections
from samgraph.passes.pipeline import COMMON, Precision, Step


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

    device: Device = Device("cpu")  # noqa: RUF009  (frozen)
    name: str = "torch"
    folds_params: bool = True
    caches_programs: bool = False
    ops: frozenset[str] = frozenset((*RULES, "constant"))
    dtypes: frozenset[DType] = frozenset(TORCH_DTYPES)
    passes: tuple[Step, ...] = (*COMMON, Step(merge_projections))

    @property
    def devices(self) -> Mapping[str, tuple[Precision, ...]]:
        """A GPU, or the CPU."""
        return {"cuda": ("fp32", "bf16"), "cpu": ("fp32", "bf16")}

    def on(self, device: Device) -> "TorchEngine":
        """The engine for a device, which must be there."""
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if device.kind == "cuda" and (device.index or 0) >= count:
            raise EngineError(
                f"device `{device}` cannot be used here",
                got=f"torch {torch.__version__}, which sees {count or 'no'} CUDA device"
                + "s" * (count > 1),
                hint='use device="cpu", or install a torch built for CUDA',
            )
        return TorchEngine(device)

    def decide(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """What is wanted; on a GPU with one thread."""
        if self.device.kind == "cuda":
            return Decision(replace(wanted, threads=1))
        rounded = "products rounded to bf16 but computed in fp32, as on a GPU and no faster"
        return Decision(wanted, rounded if wanted.precision == "bf16" else None)

    def precision_of(self, node: Node, precision: Precision) -> Precision:
        """Products alone are computed in bf16."""
        return precision if node.op in PRODUCTS and not node.exact else "fp32"

    @property
    def buffers(self) -> TorchBuffers:
        """Tensors on the device."""
        return TorchBuffers(torch.device(str(self.device)))

    @property
    def storage(self) -> frozenset[DType]:
        """None beside those it computes in."""
        return frozenset()

    @property
    def attention_tokens(self) -> int | None:
        """A GPU is filled by many objects; a CPU by one at 1024 pixels."""
        return None if self.device.kind == "cuda" else 1 << 15

    @property
    def objects_at_once(self) -> int:
        """All of them on a GPU, within its memory."""
        return 32 if self.device.kind == "cuda" else 4

    def version(self) -> str:
        """Torch's version, and where it runs."""
        name = torch.cuda.get_device_name(str(self.device)) if self.device.kind == "cuda" else "cpu"
        return f"{torch.__version__}|{name}"

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> TorchProgram:
        """Bring the weights to the device and work out the steps."""
        try:
            return TorchProgram(graph, weights, torch.device(str(self.device)), options)
        except RuntimeError as error:
            text = f"torch could not bring graph `{graph.name}` to `{self.device}`"
            raise EngineError(text, got=str(error).strip().split("\n")[0]) from error

    def restore(self, data: memoryview, options: EngineOptions) -> TorchProgram:
        """Never called: there is nothing to restore."""
        raise EngineError("the torch engine keeps nothing in a cache")


def _weight(array: Array, device: torch.device, halved: bool) -> torch.Tensor:
    tensor = to_tensor(array, device)
    return tensor.to(torch.bfloat16) if halved else tensor


engine = TorchEngine()
