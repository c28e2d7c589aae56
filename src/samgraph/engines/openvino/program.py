"""Compiled models and native kernels that run in a row, from several threads at once."""

from __future__ import annotations

import io
import json
import math
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import numpy as np
import openvino

from samgraph.engines.native import NATIVE_OPS, Kernels, is_rounded
from samgraph.engines.openvino.leaving import leave_at_exit
from samgraph.engines.openvino.library import CompiledModel, Request, Result
from samgraph.engines.openvino.scratch import MOST_KEPT_BYTES, TRIM_BYTES, trim_heap
from samgraph.engines.openvino.segments import Kind
from samgraph.engines.protocol import EngineOptions, MemoryUsage
from samgraph.errors import EngineError
from samgraph.graph.binding import bind
from samgraph.graph.graph import bind_attribute
from samgraph.graph.parser import parse_graph
from samgraph.graph.types import Array, numpy_dtype
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, CHANNELS_SECOND

Widen: TypeAlias = Callable[[], CompiledModel]
_SHAPE = attrgetter("shape")


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What one stage reads and writes, by the names of values, and how it runs.

    Of a native stage `text` is its graph, and the blob its weights, in the order of its params.
    `largest` is the size in bytes of its largest intermediate value.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: Kind
    text: str = ""
    largest: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """How the models of a program are connected; stored with them in the cache."""

    stages: tuple[StagePlan, ...]
    outputs: tuple[tuple[str, str], ...]  # name, value
    weight_bytes: int
    transposed_inputs: tuple[str, ...] = ()  # given as [B, C, H, W], read as [B, H, W, C]
    transposed_outputs: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The plan as JSON, for `read`."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def read(data: bytes) -> Plan:
        """The plan that `to_bytes` wrote."""
        try:
            found = json.loads(data)
            stages = tuple(
                StagePlan(
                    tuple(item["inputs"]),
                    tuple(item["outputs"]),
                    item["kind"],
                    str(item["text"]),
                    int(item["largest"]),
                )
                for item in found["stages"]
            )
            outputs = tuple((str(name), str(value)) for name, value in found["outputs"])
            transposed = [
                tuple(map(str, found[key])) for key in ("transposed_inputs", "transposed_outputs")
            ]
            return Plan(stages, outputs, int(found["weight_bytes"]), *transposed)
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError("a compiled graph has no plan", got=error) from error


class Stage(Protocol):
    """A part of a program."""

    def run(self, values: dict[str, Array]) -> None:
        """Read the inputs from `values` and put the outputs there, in memory of their own."""
        ...

    def export(self) -> bytes:
        """What `restore` of the engine needs besides the plan."""
        ...


class ModelStage:
    """One compiled model and its idle requests; each thread that runs takes one.

    A compiled model uses all threads for one run, and further runs wait for it. When runs from
    several threads meet, `widen` compiles it again in the background, with a thread for each of
    several runs: less time in all. A run that is alone uses all threads again. A model with large
    intermediate values gives their memory back when its last run ends.
    """

    def __init__(
        self, plan: StagePlan, compiled: CompiledModel, widen: Widen | None = None
    ) -> None:
        self.compiled = compiled
        self.shared: CompiledModel | None = None  # for runs at the same time
        self._widen, self._running, self._lock = widen, 0, threading.Lock()
        self._shared_idle: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._inputs, self._outputs = plan.inputs, plan.outputs
        self._is_large, self._trims = plan.largest > MOST_KEPT_BYTES, plan.largest > TRIM_BYTES
        self._fixed = tuple(_fixed(port) for port in compiled.outputs)
        types = [port.get_element_type() for port in compiled.inputs]
        self._halves = [i for i, type in enumerate(types) if type == openvino.Type.bf16]
        self._idle: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def run(self, values: dict[str, Array]) -> None:
        """Read the inputs from `values` and add the outputs, in new arrays.

        OpenVINO writes outputs of static shape directly; others are copied.
        """
        idle, compiled = self._idle, self.compiled
        if self._trims:
            trim_heap()
        with self._lock:
            self._running += 1
            if self._running > 1 and self.shared is not None:
                idle, compiled = self._shared_idle, self.shared
            elif self._running > 1 and self._widen is not None:
                threading.Thread(target=self._share, args=(self._widen,)).start()
                self._widen = None
        try:
            try:
                request = idle.get_nowait()
            except queue.Empty:
                request = compiled.create_infer_request()
            arrays: list[Any] = list(map(values.__getitem__, self._inputs))
            for i in self._halves:  # numpy has no bf16 that OpenVINO knows
                bits, shape = arrays[i].view(np.uint16), openvino.Shape(arrays[i].shape)
                arrays[i] = openvino.Tensor(bits, shape, openvino.Type.bf16)
            made: list[Array | None] = []
            for index, fixed in enumerate(self._fixed):
                array = None if fixed is None else np.empty(*fixed)
                made.append(array)
                if array is not None:
                    request.set_output_tensor(index, openvino.Tensor(array, shared_memory=True))
            results = request.infer(arrays, share_inputs=True, share_outputs=True)
            for index, (name, array) in enumerate(zip(self._outputs, made, strict=True)):
                values[name] = results[index].copy() if array is None else array
            if self._is_large:  # else the request would hold these inputs and outputs
                del request, results
            else:
                idle.put(request)
        finally:
            with self._lock:
                self._running -= 1
                if self._is_large and self._running == 0:
                    self._release()

    def _release(self) -> None:
        """Give the memory of intermediate values back; nothing runs meanwhile."""
        for compiled in (self.compiled, self.shared):
            if compiled is not None:
                with suppress(RuntimeError):  # it keeps its memory
                    compiled.release_memory()

    def _share(self, widen: Widen) -> None:
        """Compile for several runs at once; if that fails, runs stay one after another."""
        with suppress(RuntimeError):
            self.shared = widen()

    def export(self) -> bytes:
        """The compiled model."""
        stream = io.BytesIO()
        self.compiled.export_model(stream)
        return stream.getvalue()


# A kernel, the names of what it reads and makes, and its options.
_Call = tuple[Callable[..., Array], tuple[str, ...], str, dict[str, Any]]


class NativeStage:
    """Nodes that native kernels compute; values have other names inside than in the plan.

    In bf16 the operands of `ROUNDED_OPS` are rounded, where a node is not exact.
    """

    def __init__(
        self, plan: StagePlan, weights: Sequence[Array], kernels: Kernels, options: EngineOptions
    ) -> None:
        self._plan, self._kernels, self._options = plan, kernels, options
        self._graph = parse_graph(plan.text)
        if any(node.op not in NATIVE_OPS | {"constant"} for node in self._graph):
            raise EngineError("a compiled graph has unknown native ops", got=self._graph.name)
        self._inputs = tuple(value.name for value in self._graph.inputs)
        self._outputs = tuple(value.name for _, value in self._graph.outputs)
        self._weights = tuple(weights)
        names = (value.name for value in self._graph.params)
        self._fixed = dict(zip(names, weights, strict=True))  # and the constants
        for node in self._graph:
            if node.op == "constant":
                self._fixed[node.result.name] = node.array()
        self._calls: dict[tuple[tuple[int, ...], ...], list[_Call]] = {}

    @staticmethod
    def restore(
        plan: StagePlan, blob: memoryview, kernels: Kernels, options: EngineOptions
    ) -> NativeStage:
        """The stage that `export` wrote."""
        weights, at = [], 0
        for value in parse_graph(plan.text).params:
            shape, dtype = value.type.lengths, numpy_dtype(value.type.dtype)
            end = at + math.prod(shape) * dtype.itemsize
            weights.append(np.frombuffer(blob[at:end], dtype).reshape(shape))
            at = end
        return NativeStage(plan, weights, kernels, options)

    def run(self, values: dict[str, Array]) -> None:
        """Compute every node."""
        arrays = list(map(values.__getitem__, self._plan.inputs))
        shapes = tuple(map(_SHAPE, arrays))
        calls = self._calls.get(shapes)
        if calls is None:
            calls = self._calls[shapes] = self._bind(shapes)
        known = dict(zip(self._inputs, arrays, strict=True)) | self._fixed
        for kernel, inputs, result, attributes in calls:
            known[result] = kernel(*map(known.__getitem__, inputs), **attributes)
        values.update(zip(self._plan.outputs, map(known.__getitem__, self._outputs), strict=True))

    def _bind(self, shapes: tuple[tuple[int, ...], ...]) -> list[_Call]:
        """The calls of kernels for inputs of these shapes."""
        bindings = bind(self._graph.inputs, dict(zip(self._inputs, shapes, strict=True)))
        calls = []
        for node in self._graph:
            if node.op != "constant":
                bound = {key: bind_attribute(v, bindings) for key, v in node.attributes.items()}
                inputs = tuple(value.name for value in node.inputs)
                kernel, more = getattr(self._kernels, node.op), {"threads": self._options.threads}
                if is_rounded(node, self._options.precision):
                    more["rounded"] = True
                calls.append((kernel, inputs, node.result.name, bound | more))
        return calls

    def export(self) -> bytes:
        """The weights."""
        return b"".join(array.tobytes() for array in self._weights)


def _fixed(port: Result) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """The shape and dtype of an output that has the same in every run, and is not empty."""
    shape = port.get_partial_shape()
    if shape.is_dynamic or 0 in (sides := tuple(shape.to_shape())):
        return None
    return sides, port.get_element_type().to_dtype()


class OpenVinoProgram:
    """Stages that run one after another."""

    def __init__(
        self, plan: Plan, stages: Sequence[Stage], grown: int, held: object = None
    ) -> None:
        self._plan, self._grown = plan, grown
        self._held = held  # the memory of the cache file, which restored models read in place
        self._stages = stages
        leave_at_exit(self)
        made = {name for part in plan.stages for name in part.outputs}
        self._outputs: list[tuple[str, str, bool]] = []  # name, value, whether it must be copied
        for name, value in plan.outputs:
            self._outputs.append((name, value, value not in made))
            made.discard(value)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Named inputs to named outputs."""
        values: dict[str, Array] = dict(inputs)
        for name in self._plan.transposed_inputs:
            values[name] = values[name].transpose(CHANNELS_LAST)
        for name, array in values.items():
            values[name] = np.asarray(array, order="C")
        try:
            for stage in self._stages:
                stage.run(values)
        except RuntimeError as error:
            raise EngineError("OpenVINO could not run the graph", got=first_line(error)) from error
        found = {}
        for name, value, is_shared in self._outputs:
            found[name] = values[value].copy() if is_shared else values[value]
        for name in self._plan.transposed_outputs:
            found[name] = found[name].transpose(CHANNELS_SECOND)
        return found

    def memory(self) -> MemoryUsage:
        """The weights, and the growth of the process by compiling."""
        return MemoryUsage(self._plan.weight_bytes, self._grown)

    def export(self) -> bytes | None:
        """The plan and what each stage needs, each with its length in front."""
        parts = [self._plan.to_bytes(), *(stage.export() for stage in self._stages)]
        return b"".join(part for item in parts for part in (len(item).to_bytes(8, "little"), item))


def split_export(data: memoryview) -> list[memoryview]:
    """The parts of the bytes of `OpenVinoProgram.export`, without copying."""
    parts, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        parts.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return parts


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else error.__class__.__name__
