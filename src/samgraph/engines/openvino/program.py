"""Compiled models that run: one or more in a row, from several threads at once."""

from __future__ import annotations

import io
import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import openvino

from samgraph.engines.openvino.library import CompiledModel, Request, Result
from samgraph.engines.protocol import MemoryUsage
from samgraph.errors import EngineError
from samgraph.graph.types import Array
from samgraph.passes.pointwise_to_linear import CHANNELS_LAST, CHANNELS_SECOND

Widen: TypeAlias = Callable[[], CompiledModel]

# A graph with more weights, such as an image encoder, is not compiled a second time.
MOST_SHARED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class StagePlan:
    """What one model reads and writes, by the names of values, and whether it is exact."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """How the models of a program fit together; kept with them in the cache."""

    stages: tuple[StagePlan, ...]
    outputs: tuple[tuple[str, str], ...]  # name, value
    weight_bytes: int
    transposed_inputs: tuple[str, ...] = ()  # given as [B, C, H, W], read as [B, H, W, C]
    transposed_outputs: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Text that `read` reads back."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def read(data: bytes) -> Plan:
        """The plan that `to_bytes` wrote."""
        try:
            found = json.loads(data)
            stages = tuple(
                StagePlan(tuple(item["inputs"]), tuple(item["outputs"]), bool(item["exact"]))
                for item in found["stages"]
            )
            outputs = tuple((str(name), str(value)) for name, value in found["outputs"])
            transposed = [
                tuple(map(str, found[key])) for key in ("transposed_inputs", "transposed_outputs")
            ]
            return Plan(stages, outputs, int(found["weight_bytes"]), *transposed)
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError("a compiled graph has no plan", got=error) from error


class Stage:
    """One compiled model and its idle requests; each thread that runs takes one.

    A compiled model has all threads for one run, and further runs wait for it. Where threads meet,
    `widen` compiles it again in the background, with a thread for each of several runs: less time
    in all, since a run on one thread wastes none. A run that is alone has all threads again.
    """

    def __init__(
        self, plan: StagePlan, compiled: CompiledModel, widen: Widen | None = None
    ) -> None:
        self.compiled = compiled
        self.shared: CompiledModel | None = None  # for runs at the same time
        self._widen, self._running, self._lock = widen, 0, threading.Lock()
        self._shared_idle: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._inputs, self._outputs = plan.inputs, plan.outputs
        self._fixed = tuple(_fixed(port) for port in compiled.outputs)
        types = [port.get_element_type() for port in compiled.inputs]
        self._halves = [i for i, type in enumerate(types) if type == openvino.Type.bf16]
        self._idle: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def run(self, values: dict[str, Array]) -> None:
        """Read the inputs from `values` and put the outputs there, in memory of their own.

        What has a known size OpenVINO writes there itself; the rest is copied.
        """
        idle, compiled = self._idle, self.compiled
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
            for place in self._halves:  # numpy has no bf16 that OpenVINO knows
                bits, shape = arrays[place].view(np.uint16), openvino.Shape(arrays[place].shape)
                arrays[place] = openvino.Tensor(bits, shape, openvino.Type.bf16)
            made: list[Array | None] = []
            for place, fixed in enumerate(self._fixed):
                array = None if fixed is None else np.empty(*fixed)
                made.append(array)
                if array is not None:
                    request.set_output_tensor(place, openvino.Tensor(array, shared_memory=True))
            results = request.infer(arrays, share_inputs=True, share_outputs=True)
            for place, (name, array) in enumerate(zip(self._outputs, made, strict=True)):
                values[name] = results[place].copy() if array is None else array
            idle.put(request)
        finally:
            with self._lock:
                self._running -= 1

    def _share(self, widen: Widen) -> None:
        """Compile for several runs at once; where that fails, runs go on one after another."""
        with suppress(RuntimeError):
            self.shared = widen()


def _fixed(port: Result) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """The shape and dtype of an output that has the same in every run, and is not empty."""
    shape = port.get_partial_shape()
    if shape.is_dynamic or 0 in (sides := tuple(shape.to_shape())):
        return None
    return sides, port.get_element_type().to_dtype()


class OpenVinoProgram:
    """Compiled models that run one after another."""

    def __init__(
        self,
        plan: Plan,
        models: Sequence[CompiledModel],
        grown: int,
        held: object = None,
        widen: Sequence[Widen] = (),
    ) -> None:
        self._plan, self._grown = plan, grown
        self._held = held  # the memory of the cache file, which restored models read in place
        is_small = plan.weight_bytes <= MOST_SHARED_BYTES
        again = list(widen) if widen and is_small else [None] * len(models)
        parts = zip(plan.stages, models, again, strict=True)
        self._stages = [Stage(*part) for part in parts]
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
        """The weights, and how much the process grew while compiling."""
        return MemoryUsage(self._plan.weight_bytes, self._grown)

    def export(self) -> bytes | None:
        """The plan and the compiled models, each with its length in front."""
        parts = [self._plan.to_bytes()]
        for stage in self._stages:
            stream = io.BytesIO()
            stage.compiled.export_model(stream)
            parts.append(stream.getvalue())
        return b"".join(part for item in parts for part in (len(item).to_bytes(8, "little"), item))


def split_export(data: memoryview) -> list[memoryview]:
    """The parts that `OpenVinoProgram.export` put together, without copying."""
    parts, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        parts.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return parts


def first_line(error: Exception) -> str:
    """What a library's error says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else error.__class__.__name__
