"""Compilation with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime

from samgraph.engines.buffers import HOST_BUFFERS, HostBuffers
from samgraph.engines.devices import Device
from samgraph.engines.onnx import LOWER, PIPELINE, build
from samgraph.engines.onnxruntime.program import (
    FAILURES,
    OnnxRuntimeProgram,
    brief,
    read_export,
)
from samgraph.engines.onnxruntime.providers import (
    DEVICES,
    check_used,
    installed,
    providers_for,
)
from samgraph.engines.protocol import Decision, EngineOptions
from samgraph.errors import EngineError
from samgraph.graph.graph import Graph, Node
from samgraph.graph.types import Array, DType
from samgraph.passes.pipeline import Precision, Step

_CPU = Device("cpu")
_ERRORS_ONLY = 3  # of the library's log


@dataclass(frozen=True, slots=True)
class OnnxRuntimeEngine:
    """ONNX Runtime: the CPU, and devices of other builds of it. Buffers are numpy arrays."""

    name: str = "onnxruntime"
    folds_params: bool = True
    caches_programs: bool = True
    ops: frozenset[str] = frozenset(LOWER)
    dtypes: frozenset[DType] = frozenset(("f32", "f16", "i64", "i32", "u8", "bool"))
    passes: tuple[Step, ...] = PIPELINE
    device: Device = _CPU

    @property
    def devices(self) -> Mapping[str, tuple[Precision, ...]]:
        """Those that some build of it has an execution provider for; `on` says which are here."""
        return DEVICES

    def on(self, device: Device) -> OnnxRuntimeEngine:
        """The engine for a device; `EngineError` if there is no provider for it."""
        providers_for(device, installed())
        return replace(self, device=device)

    def decide(self, wanted: EngineOptions, memory: Path | None) -> Decision:
        """As wanted, in float32."""
        why = None if self.device.kind == "cpu" else f"{self._provider}, untested"
        return Decision(replace(wanted, precision="fp32"), why)

    @property
    def _provider(self) -> str:
        return providers_for(self.device, installed())[0][0].removesuffix("ExecutionProvider")

    @property
    def exact_precision(self) -> Precision:
        """Float32."""
        return "fp32"

    def precision_of(self, node: Node, precision: Precision) -> Precision:
        """Float32 all over."""
        return "fp32"

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
        """The memory of one object at 1024 pixels."""
        return 1 << 15

    @property
    def objects_at_once(self) -> int:
        """Larger batches are no faster on a CPU."""
        return 4

    def version(self) -> str:
        """The library's version, and what it runs on."""
        return f"{onnxruntime.__version__}|{self.device}|{','.join(installed())}"

    def compile(
        self, graph: Graph, weights: Mapping[str, Array], options: EngineOptions
    ) -> OnnxRuntimeProgram:
        """Lower to ONNX and make a session."""
        model: bytes = build(graph, weights).SerializeToString()
        names = tuple(name for name, _ in graph.outputs)
        size = sum(weights[value.name].nbytes for value in graph.params)
        return OnnxRuntimeProgram(partial(self._session, graph.name, options), model, names, size)

    def restore(self, data: memoryview, options: EngineOptions) -> OnnxRuntimeProgram:
        """The program from the bytes of `export`."""
        model, names, size = read_export(data)
        make = partial(self._session, "of the cache", options)
        return OnnxRuntimeProgram(make, model, names, size)

    def _session(self, name: str, options: EngineOptions, model: bytes, fuses: bool) -> Any:
        settings, levels = onnxruntime.SessionOptions(), onnxruntime.GraphOptimizationLevel
        level = levels.ORT_ENABLE_ALL if fuses else levels.ORT_ENABLE_BASIC
        settings.graph_optimization_level = level
        settings.intra_op_num_threads = options.threads
        settings.log_severity_level = _ERRORS_ONLY
        providers = providers_for(self.device, installed())
        try:
            session: Any = onnxruntime.InferenceSession(model, settings, providers=providers)
        except FAILURES as error:
            text = f"ONNX Runtime could not compile graph `{name}`"
            raise EngineError(text, got=brief(error)) from error
        check_used(self.device, providers[0][0], session.get_providers())
        return session


engine = OnnxRuntimeEngine()
