"""Compilation with OpenVINO."""

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
from samgraph.engines.native import NATIVE_OPS, NATIVE_PASSES, Kernels, find_kernels, is_rounded
from samgraph.engines.native.library import NAME, VERSION
from samgraph.engines.openvino import accelerators
from samgraph.engines.openvino.bf16 import bf16_verdict
from samgraph.engines.openvino.interface import Stripped, strip_transposes
from samgraph.engines.openvino.library import CompiledModel, Core, Hints, Port, opset15
from samgraph.engines.openvino.lowering import ELEMENT_TYPES, LOWER, STORED_TYPES, constant, empty
from samgraph.engines.openvino.passes.products_in_bf16 import PRODUCTS
from samgraph.engines.openvino.pipeline import PIPELINE
from samgraph.engines.openvino.program import (
    ModelStage,
    NativeStage,
    OpenVinoProgram,
    Plan,
    Stage,
    StagePlan,
    first_line,
    split_export,
)
from samgraph.engines.openvino.scratch import largest_value, trim_heap
from samgraph.engines.openvino.segments import Segment, cut
from samgraph.engines.openvino.symbols import SymbolTable
from samgraph.engines.protocol import (
    CPU_ATTENTION_TOKENS,
    CPU_OBJECTS_AT_ONCE,
    Decision,
    DeviceInfo,
    EngineOptions,
)
from samgraph.errors import EngineError
from samgraph.graph.dims import evaluate, product
from samgraph.graph.graph import Graph, Node, Value
from samgraph.graph.printer import print_graph
from samgraph.graph.types import Array, DType, numpy_dtype
from samgraph.passes.pipeline import Precision, Step

# A graph with more weights, such as an image encoder, is not compiled a second time.
MOST_SHARED_BYTES = 32 << 20
# A smaller constant is copied into each model that reads it.
LEAST_SHARED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenVinoEngine:
    """OpenVINO on the CPU: x86 and ARM, fp32 and bf16; or on an Intel GPU or NPU, untested."""

    device: Device = Device("cpu")  # noqa: RUF009  (frozen)
    target: str = "CPU"  # OpenVINO's name of it
    name: str = "openvino"
    folds_params: bool = True
    caches_programs: bool = True
    ops: frozenset[str] = frozenset(LOWER) | NATIVE_OPS
    dtypes: frozenset[DType] = frozenset(ELEMENT_TYPES)

    @property
    def passes(self) -> tuple[Step, ...]:
        """Its pipeline; without native kernels less the passes that use them."""
        if find_kernels() is not None and self.target == "CPU":
            return PIPELINE
        return tuple(step for step in PIPELINE if step not in NATIVE_PASSES)

    @property
    def devices(self) -> Mapping[str, tuple[Precision, ...]]:
        """The CPU; bf16 only where `decide` finds that it works and is faster."""
        return {"cpu": ("fp32", "bf16"), **accelerators.PRECISIONS}

    def on(self, device: Device) -> OpenVinoEngine:
        """Itself for the CPU; the engine for another device, which must be there."""
        if device.kind == "cpu":
            return engine
        return replace(self, device=device, target=accelerators.find_target(_core(), device))

    def found(self, memory: Path | None) -> tuple[DeviceInfo, ...]:
        """The CPU, and the GPUs and NPUs that OpenVINO sees."""
        return tuple(self._info(name, memory) for name in _core().available_devices)

    def _info(self, target: str, memory: Path | None) -> DeviceInfo:
        name, kind = _core().get_property(target, "FULL_DEVICE_NAME"), _kind(target)
        if kind == "cpu":
            decision = self.decide(EngineOptions("bf16"), memory)
            able: tuple[Precision, ...] = (
                ("fp32", "bf16") if decision.options.precision == "bf16" else ("fp32",)
            )
            return DeviceInfo(Device("cpu"), name, able, note=decision.why)
        index = target.partition(".")[2]
        device = Device(kind, int(index) if index.isdigit() else None)
        able = accelerators.able(_core(), kind, target)
        return DeviceInfo(device, name, able, accelerators.memory_bytes(_core(), kind, target))

    def decide(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """Bf16 where a probe survives and is faster; the result is cached in `memory`."""
        if self.target != "CPU":
            return self._decide_elsewhere(wanted, memory)
        if wanted.precision == "fp32":
            return Decision(wanted)
        allowed, why = bf16_verdict(memory, self.version())
        return Decision(wanted if allowed else replace(wanted, precision="fp32"), why)

    def _decide_elsewhere(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """A precision that the device has, after a probe."""
        able = accelerators.able(_core(), self.device.kind, self.target)
        if not able:
            raise EngineError(
                f"device `{self.device}` cannot be used here",
                got="it computes neither in fp32 nor in fp16",
                hint='use device="cpu"',
            )
        used = replace(wanted, threads=1)
        used = used if wanted.precision in able else replace(used, precision=able[0])
        accelerators.check_works(self.target, used.precision, self.version(), memory)
        return Decision(used, "untested")

    @property
    def exact_precision(self) -> Precision:
        """Float32, but on an NPU, which has none."""
        return "fp16" if self.device.kind == "npu" else "fp32"

    def precision_of(self, node: Node, precision: Precision) -> Precision:
        """Products whose operands a pass or a kernel rounds are in bf16, all else in float32.

        On other devices than the CPU a whole program is in its precision.
        """
        if self.target != "CPU":
            return precision
        if is_rounded(node, precision):
            return "bf16"
        return "bf16" if node.op in PRODUCTS and node.result.type.dtype == "bf16" else "fp32"

    @property
    def buffers(self) -> HostBuffers:
        """Numpy arrays."""
        return HOST_BUFFERS

    @property
    def storage(self) -> frozenset[DType]:
        """The memory bank is stored in bf16 and cast before any computation."""
        return frozenset(("bf16",))

    @property
    def attention_tokens(self) -> int:
        """As measured on a CPU."""
        return CPU_ATTENTION_TOKENS

    @property
    def objects_at_once(self) -> int:
        """As measured on a CPU."""
        return CPU_OBJECTS_AT_ONCE

    def version(self) -> str:
        """OpenVINO's version and the processor's features: a compiled model depends on both."""
        abilities = ",".join(_core().get_property(self.target, "OPTIMIZATION_CAPABILITIES"))
        name = _core().get_property(self.target, "FULL_DEVICE_NAME")
        kernels = find_kernels()
        native = f"{VERSION} {kernels.instructions}" if kernels else "none"
        return f"{openvino.get_version()}|{name}|{abilities}|native {native}"

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> OpenVinoProgram:
        """Build a model for each segment and compile it. Thread-safe."""
        before = _resident()
        stripped = strip_transposes(graph)
        segments = cut(stripped.graph)
        stages: list[Stage] = []
        tables: dict[int, Array] = {}
        plan = _plan(stripped, segments)
        for segment, part in zip(segments, plan.stages, strict=True):
            if segment.kind == "native":
                used = [np.ascontiguousarray(weights[v.name]) for v in segment.graph.params]
                stages.append(NativeStage(part, used, _kernels(), options))
                continue
            try:
                model = build(segment.graph, weights, tables)
                compiled = _core().compile_model(model, self.target, self._hints(options))
            except RuntimeError as error:
                hint = None if self.target == "CPU" else 'use device="cpu"'
                text = f"OpenVINO could not compile graph `{graph.name}` for `{self.device}`"
                raise EngineError(text, got=first_line(error), hint=hint) from error
            widen = partial(_again, compiled, _hints(options, several=True))
            is_shared = self.target == "CPU" and _can_share(plan, options)
            stages.append(ModelStage(part, compiled, widen if is_shared else None))
        trim_heap()
        return OpenVinoProgram(plan, stages, max(0, _resident() - before))

    def restore(self, data: memoryview, options: EngineOptions) -> OpenVinoProgram:
        """The program from the bytes of `export`."""
        before = _resident()
        head, *blobs = split_export(data) or [data]
        plan = Plan.read(bytes(head))
        if len(plan.stages) != len(blobs):
            raise EngineError("a compiled graph is not whole", got=f"{len(blobs)} models")
        stages: list[Stage] = []
        for stage, blob in zip(plan.stages, blobs, strict=True):
            if stage.kind == "native":
                stages.append(NativeStage.restore(stage, blob, _kernels(), options))
                continue
            try:
                tensor = openvino.Tensor(np.frombuffer(blob, np.uint8), shared_memory=True)
                compiled = _core().import_model(tensor, self.target, self._hints(options))
            except RuntimeError as error:
                raise EngineError(
                    "OpenVINO could not read a compiled graph", got=first_line(error)
                ) from error
            hints = _hints(options, several=True)
            widen = partial(_core().import_model, tensor, "CPU", hints)
            is_shared = self.target == "CPU" and _can_share(plan, options)
            stages.append(ModelStage(stage, compiled, widen if is_shared else None))
        return OpenVinoProgram(plan, stages, max(0, _resident() - before), held=data)

    def _hints(self, options: EngineOptions) -> Hints:
        if self.target == "CPU":
            return _hints(options)
        return accelerators.hints(self.target, options.precision)


def _kind(target: str) -> str:
    """Our kind of one of OpenVINO's devices."""
    return target.partition(".")[0].lower()


def _kernels() -> Kernels:
    kernels = find_kernels()
    if kernels is None:
        raise EngineError("the native kernels of a compiled graph are missing", got=NAME)
    return kernels


def _plan(stripped: Stripped, segments: list[Segment]) -> Plan:
    stages = tuple(
        StagePlan(
            tuple(value.name for value in segment.graph.inputs),
            tuple(name for name, _ in segment.graph.outputs),
            segment.kind,
            print_graph(_named(segment.graph), data=True) if segment.kind == "native" else "",
            largest_value(segment.graph),
        )
        for segment in segments
    )
    outputs = tuple((name, value.name) for name, value in stripped.graph.outputs)
    weight_bytes = _weight_bytes(stripped.graph)
    return Plan(stages, outputs, weight_bytes, stripped.inputs, stripped.outputs)


def _named(graph: Graph) -> Graph:
    """The graph with names that may be printed: inputs of a segment can be called 0, 1, ..."""

    def named(value: Value) -> Value:
        return replace(value, name=f"v.{value.name}")

    return Graph(
        graph.name,
        tuple(map(named, graph.inputs)),
        tuple(map(named, graph.params)),
        tuple(
            replace(node, inputs=tuple(map(named, node.inputs)), result=named(node.result))
            for node in graph
        ),
        tuple((f"out.{i}", named(value)) for i, (_, value) in enumerate(graph.outputs)),
    )


def build(
    graph: Graph, weights: Mapping[str, Array], tables: dict[int, Array] | None = None
) -> openvino.Model:
    """The OpenVINO model of a graph.

    `tables` are the copies of large constants, by the identity of what was copied: models that
    share the dict share the copies.
    """
    tables = {} if tables is None else tables
    parameters = {value.name: _parameter(value) for value in graph.inputs}
    made: dict[str, Port] = dict(parameters)
    for value in graph.params:
        made[value.name] = constant(weights[value.name])
    symbols = SymbolTable(graph.inputs, parameters)
    for node in graph:
        type = node.result.type
        if 0 in type.shape and not type.symbols:  # some empty tensors crash OpenVINO
            made[node.result.name] = empty(type)
            continue
        if node.op == "constant" and node.array().nbytes >= LEAST_SHARED_BYTES:
            array = node.array()
            if id(array) not in tables:
                tables[id(array)] = array.copy()
            made[node.result.name] = constant(tables[id(array)])
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


def _can_share(plan: Plan, options: EngineOptions) -> bool:
    """Whether a graph may be compiled a second time for runs from several threads."""
    return options.threads > 1 and plan.weight_bytes <= MOST_SHARED_BYTES


def _again(compiled: CompiledModel, hints: Hints) -> CompiledModel:
    """A compiled model once more, with other hints."""
    stream = io.BytesIO()
    compiled.export_model(stream)
    return _core().import_model(stream.getvalue(), "CPU", hints)


def _hints(options: EngineOptions, *, several: bool = False) -> Hints:
    """How a model is compiled: all threads for one run, or a thread for each of several."""
    return {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": options.threads if several else 1,
        "EXECUTION_MODE_HINT": "ACCURACY",
    }


def _weight_bytes(graph: Graph) -> int:
    types = [value.type for value in graph.params]
    return sum(evaluate(product(t.shape), {}) * numpy_dtype(t.dtype).itemsize for t in types)


def _resident() -> int:
    """The resident set size of the process in bytes; 0 if unknown."""
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
