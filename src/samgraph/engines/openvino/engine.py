"""Compiling and running through OpenVINO."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import openvino

from samgraph.engines.buffers import HOST_BUFFERS, HostBuffers
from samgraph.engines.devices import Device
from samgraph.engines.openvino.bf16 import bf16_verdict
from samgraph.engines.openvino.interface import Stripped, strip_transposes
from samgraph.engines.openvino.library import CompiledModel, Core, Hints, Port, opset15
from samgraph.engines.openvino.lowering import ELEMENT_TYPES, LOWER, STORED_TYPES, empty
from samgraph.engines.openvino.pipeline import PIPELINE
from samgraph.engines.openvino.program import (
    OpenVinoProgram,
    Plan,
    StagePlan,
    first_line,
    split_export,
)
from samgraph.engines.openvino.segments import Segment, cut, whole
from samgraph.engines.openvino.symbols import SymbolTable
from samgraph.engines.protocol import Decision, EngineOptions
from samgraph.errors import EngineError
from samgraph.graph.dims import evaluate, product
from samgraph.graph.graph import Graph, Node, Value
from samgraph.graph.types import Array, DType, numpy_dtype
from samgraph.passes.pipeline import Precision, Step


@dataclass(frozen=True, slots=True)
class OpenVinoEngine:
    """OpenVINO on the CPU: x86 and ARM, fp32 and bf16."""

    name: str = "openvino"
    folds_params: bool = True
    caches_programs: bool = True
    ops: frozenset[str] = frozenset(LOWER)
    dtypes: frozenset[DType] = frozenset(ELEMENT_TYPES)
    passes: tuple[Step, ...] = PIPELINE

    @property
    def devices(self) -> Mapping[str, tuple[Precision, ...]]:
        """The CPU; bf16 only where `decide` finds that it works and gains."""
        return {"cpu": ("fp32", "bf16")}

    def on(self, device: Device) -> OpenVinoEngine:
        """Itself: there is one CPU."""
        return self

    def decide(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """Bf16 where a probe survives it and is faster; the answer is kept in `memory`."""
        if wanted.precision == "fp32":
            return Decision(wanted)
        allowed, why = bf16_verdict(memory, self.version())
        return Decision(wanted if allowed else replace(wanted, precision="fp32"), why)

    def precision_of(self, node: Node, precision: Precision) -> Precision:
        """Exact nodes are in segments of float32."""
        return "fp32" if node.exact else precision

    @property
    def buffers(self) -> HostBuffers:
        """Numpy arrays."""
        return HOST_BUFFERS

    @property
    def storage(self) -> frozenset[DType]:
        """Memory is kept in bf16 and cast before anything computes with it."""
        return frozenset(("bf16",))

    @property
    def attention_tokens(self) -> int:
        """What one object remembers at 1024 pixels: four in one run take a sixth longer."""
        return 1 << 15

    @property
    def objects_at_once(self) -> int:
        """More are no faster on a CPU, and take 60 MB each at 1024 pixels."""
        return 4

    def version(self) -> str:
        """OpenVINO's version and the processor's abilities: a compiled model depends on both."""
        abilities = ",".join(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        name = _core().get_property("CPU", "FULL_DEVICE_NAME")
        return f"{openvino.get_version()}|{name}|{abilities}"

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> OpenVinoProgram:
        """Build a model for each segment and compile it; several threads may do so at once."""
        before = _resident()
        stripped = strip_transposes(graph)
        inner = stripped.graph
        segments = [whole(inner)] if options.precision == "fp32" else cut(inner)
        models, widen = [], []
        for segment in segments:
            try:
                model = build(segment.graph, weights)
                hints = _hints(segment.exact, options)
                models.append(_core().compile_model(model, "CPU", hints))
                widen.append(partial(_again, models[-1], _hints(segment.exact, options, True)))
            except RuntimeError as error:
                raise EngineError(
                    f"OpenVINO could not compile graph `{graph.name}`", got=first_line(error)
                ) from error
        grown = max(0, _resident() - before)
        several = widen if options.threads > 1 else ()
        return OpenVinoProgram(_plan(stripped, segments), models, grown, widen=several)

    def restore(self, data: memoryview, options: EngineOptions) -> OpenVinoProgram:
        """Import what `export` gave."""
        before = _resident()
        head, *blobs = split_export(data) or [data]
        plan = Plan.read(bytes(head))
        if len(plan.stages) != len(blobs):
            raise EngineError("a compiled graph is not whole", got=f"{len(blobs)} models")
        models, widen = [], []
        for stage, blob in zip(plan.stages, blobs, strict=True):
            try:
                tensor = openvino.Tensor(np.frombuffer(blob, np.uint8), shared_memory=True)
                hints = _hints(stage.exact, options)
                models.append(_core().import_model(tensor, "CPU", hints))
                hints = _hints(stage.exact, options, True)
                widen.append(partial(_core().import_model, tensor, "CPU", hints))
            except RuntimeError as error:
                raise EngineError(
                    "OpenVINO could not read a compiled graph", got=first_line(error)
                ) from error
        grown = max(0, _resident() - before)
        several = widen if options.threads > 1 else ()
        return OpenVinoProgram(plan, models, grown, held=data, widen=several)


def _plan(stripped: Stripped, segments: list[Segment]) -> Plan:
    stages = tuple(
        StagePlan(
            tuple(value.name for value in segment.graph.inputs),
            tuple(name for name, _ in segment.graph.outputs),
            segment.exact,
        )
        for segment in segments
    )
    outputs = tuple((name, value.name) for name, value in stripped.graph.outputs)
    weight_bytes = _weight_bytes(stripped.graph)
    return Plan(stages, outputs, weight_bytes, stripped.inputs, stripped.outputs)


def build(graph: Graph, weights: Mapping[str, Array]) -> openvino.Model:
    """The OpenVINO model of a graph."""
    parameters = {value.name: _parameter(value) for value in graph.inputs}
    made: dict[str, Port] = dict(parameters)
    for value in graph.params:
        made[value.name] = opset15.constant(weights[value.name], shared_memory=True)
    symbols = SymbolTable(graph.inputs, parameters)
    for node in graph:
        type = node.result.type
        if 0 in type.shape and not type.symbols:  # some empty tensors OpenVINO does not survive
            made[node.result.name] = empty(type)
            continue
        inputs = [made[value.name] for value in node.inputs]
        made[node.result.name] = LOWER[node.op](symbols, node, inputs)
    results = [opset15.result(made[value.name]) for _, value in graph.outputs]
    return openvino.Model(results, [parameters[v.name] for v in graph.inputs], graph.name)


def _parameter(value: Value) -> Port:
    shape = [dim if isinstance(dim, int) else -1 for dim in value.type.shape]
    node = opset15.parameter(openvino.PartialShape(shape), STORED_TYPES[value.type.dtype])
    node.set_friendly_name(value.name)
    return node


def _again(compiled: CompiledModel, hints: Hints) -> CompiledModel:
    """A compiled model once more, with other hints."""
    stream = io.BytesIO()
    compiled.export_model(stream)
    return _core().import_model(stream.getvalue(), "CPU", hints)


def _hints(exact: bool, options: EngineOptions, several: bool = False) -> Hints:
    """How a model is compiled: all threads for one run, or a thread for each of several."""
    exact = exact or options.precision == "fp32"
    return {
        "INFERENCE_PRECISION_HINT": "f32" if exact else "bf16",
        "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": options.threads if several else 1,
        "EXECUTION_MODE_HINT": "ACCURACY",
    }


def _weight_bytes(graph: Graph) -> int:
    types = [value.type for value in graph.params]
    return sum(evaluate(product(t.shape), {}) * numpy_dtype(t.dtype).itemsize for t in types)


def _resident() -> int:
    """Bytes this process has in memory now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0


@cache
def _core() -> Core:
    core: Core = openvino.Core()
    return core


engine = OpenVinoEngine()
