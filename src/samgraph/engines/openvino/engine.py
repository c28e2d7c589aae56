"""Compiling and running through OpenVINO."""

import io
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import openvino
from openvino import opset15

from samgraph.engines.decompositions import antialiased_resize, axial_rope, layer_norm_2d
from samgraph.engines.openvino.lowering import ELEMENT_TYPES, LOWER, Output, empty
from samgraph.engines.openvino.segments import Segment, cut, whole
from samgraph.engines.openvino.symbols import SymbolTable
from samgraph.engines.protocol import Decomposition, EngineOptions, MemoryUsage
from samgraph.errors import EngineError
from samgraph.graph.dims import evaluate, product
from samgraph.graph.graph import Graph, Value
from samgraph.graph.types import Array, DType, numpy_dtype

_LACKS: dict[str, Decomposition] = {
    "axial_rope": axial_rope,
    "layer_norm_2d": layer_norm_2d,
    "resize": antialiased_resize,
}


class _Stage:
    """One compiled model and its idle requests; each thread that runs takes one."""

    def __init__(self, segment: Segment, compiled: Any) -> None:
        self.inputs = tuple(value.name for value in segment.graph.inputs)
        self.outputs = tuple(name for name, _ in segment.graph.outputs)
        self.compiled = compiled
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self, values: Mapping[str, Array]) -> list[Array]:
        try:
            request = self._idle.get_nowait()
        except queue.Empty:
            request = self.compiled.create_infer_request()
        arrays = [values[name] for name in self.inputs]
        results = request.infer(arrays, share_inputs=True, share_outputs=True)
        copies = [results[i].copy() for i in range(len(self.outputs))]
        self._idle.put(request)
        return copies


class OpenVinoProgram:
    """One or more compiled models that run one after another."""

    def __init__(self, graph: Graph, stages: list[_Stage], usage: MemoryUsage) -> None:
        made = {name for stage in stages for name in stage.outputs}
        self._outputs: list[tuple[str, str, bool]] = []  # name, value, whether it must be copied
        for name, value in graph.outputs:
            self._outputs.append((name, value.name, value.name not in made))
            made.discard(value.name)
        self._stages, self._usage = stages, usage

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Named inputs to named outputs."""
        values = dict(inputs)
        try:
            for stage in self._stages:
                values.update(zip(stage.outputs, stage.run(values), strict=True))
        except RuntimeError as error:
            raise EngineError("OpenVINO could not run the graph", got=_first_line(error)) from error
        return {
            name: values[value].copy() if shared else values[value]
            for name, value, shared in self._outputs
        }

    def memory(self) -> MemoryUsage:
        """The weights, and how much the process grew while compiling."""
        return self._usage

    def export(self) -> bytes | None:
        """The compiled models, each with its length in front."""
        parts = []
        for stage in self._stages:
            stream = io.BytesIO()
            stage.compiled.export_model(stream)
            parts.append(stream.getvalue())
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


@dataclass(frozen=True, slots=True)
class OpenVinoEngine:
    """OpenVINO on the CPU: x86 and ARM, fp32 and bf16."""

    name: str = "openvino"
    dtypes: frozenset[DType] = frozenset(ELEMENT_TYPES)

    @property
    def lacks(self) -> Mapping[str, Decomposition]:
        """The ops OpenVINO has no node for."""
        return _LACKS

    def version(self) -> str:
        """OpenVINO's version and the processor's abilities: a compiled model depends on both."""
        abilities = ",".join(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        name = _core().get_property("CPU", "FULL_DEVICE_NAME")
        return f"{openvino.get_version()}|{name}|{abilities}"

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> OpenVinoProgram:
        """Build a model for each segment and compile it."""
        before = _resident()
        stages = []
        for segment in _segments(graph, options):
            with _COMPILING:
                try:
                    model = build(segment.graph, weights)
                    compiled = _core().compile_model(model, "CPU", _hints(segment, options))
                except RuntimeError as error:
                    raise EngineError(
                        f"OpenVINO could not compile graph `{graph.name}`", got=_first_line(error)
                    ) from error
            stages.append(_Stage(segment, compiled))
        usage = MemoryUsage(_weight_bytes(graph), max(0, _resident() - before))
        return OpenVinoProgram(graph, stages, usage)

    def restore(self, graph: Graph, data: bytes, options: EngineOptions) -> OpenVinoProgram:
        """Import what `export` gave."""
        before, stages, at = _resident(), [], 0
        view = memoryview(data)
        for segment in _segments(graph, options):
            length = int.from_bytes(view[at : at + 8], "little")
            blob = io.BytesIO(view[at + 8 : at + 8 + length])
            at += 8 + length
            try:
                compiled = _core().import_model(blob, "CPU", _hints(segment, options))
            except RuntimeError as error:
                raise EngineError(
                    "OpenVINO could not read a compiled graph", got=_first_line(error)
                ) from error
            stages.append(_Stage(segment, compiled))
        usage = MemoryUsage(_weight_bytes(graph), max(0, _resident() - before))
        return OpenVinoProgram(graph, stages, usage)


def build(graph: Graph, weights: Mapping[str, Array]) -> Any:
    """The OpenVINO model of a graph."""
    made: dict[str, Output] = {value.name: _parameter(value) for value in graph.inputs}
    parameters = dict(made)
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


def _parameter(value: Value) -> Output:
    shape = [dim if isinstance(dim, int) else -1 for dim in value.type.shape]
    node = opset15.parameter(openvino.PartialShape(shape), ELEMENT_TYPES[value.type.dtype])
    node.set_friendly_name(value.name)
    return node


def _segments(graph: Graph, options: EngineOptions) -> list[Segment]:
    return [whole(graph)] if options.precision == "fp32" else cut(graph)


def _hints(segment: Segment, options: EngineOptions) -> dict[str, Any]:
    exact = segment.exact or options.precision == "fp32"
    return {
        "INFERENCE_PRECISION_HINT": "f32" if exact else "bf16",
        "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": 1,
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


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else error.__class__.__name__


@cache
def _core() -> Any:
    return openvino.Core()


_COMPILING = threading.Lock()  # OpenVINO reads the weights' memory while it compiles

engine = OpenVinoEngine()
