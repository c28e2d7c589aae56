"""ONNX files: one per graph, of standard operators; weights inside, or beside in `weights.bin`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samgraph.engines.onnx import PIPELINE, build, rotary
from samgraph.engines.onnx.build import OPSET, OPSETS
from samgraph.errors import OptionError, OutputError
from samgraph.exporters.onnx.external import ExternalWeights
from samgraph.exporters.onnx.passes.floats_in_f16 import floats_in_f16
from samgraph.exporters.protocol import ExportOptions, Written, write_file
from samgraph.graph.graph import Graph
from samgraph.graph.types import Array
from samgraph.graph.verifier import verify
from samgraph.passes import fold_params, optimise, passes_for
from samgraph.passes.decompose_axial_rope import decompose_axial_rope
from samgraph.passes.pipeline import Precision, Step
from samgraph.passes.specialise import specialise

WEIGHTS = "weights.bin"
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
_IN_F16 = Step(floats_in_f16, precisions=("fp16",))
_LARGEST = (1 << 31) - (1 << 20)  # bytes of a protobuf message, less what else is in it


@dataclass(frozen=True, slots=True)
class OnnxExporter:
    """Writes ONNX models. Axes of symbolic length are named, and at least one long."""

    name: str = "onnx"
    passes: tuple[Step, ...] = (*PIPELINE, _IN_F16)

    def export(
        self,
        graphs: Mapping[str, Graph],
        weights: Mapping[str, Array],
        folder: Path,
        options: ExportOptions,
    ) -> Written:
        """Write `NAME.onnx` for each graph, and `weights.bin` if the weights go beside."""
        opset = options.opset or OPSET
        _check(options, opset)
        external = ExternalWeights(WEIGHTS) if options.weights == "beside" else None
        written: dict[str, Path] = {}
        for name, graph in graphs.items():
            model = self.model(name, graph, weights, options)
            if external is not None:
                external.take(model)
            written[name] = write_file(folder / f"{name}.onnx", _serialised(name, model))
        shared = () if external is None else (write_file(folder / WEIGHTS, external.data()),)
        return Written(written, shared, {"opset": opset})

    def model(
        self, name: str, graph: Graph, weights: Mapping[str, Array], options: ExportOptions
    ) -> Any:
        """The `onnx.ModelProto` of one graph."""
        precision = "fp32" if name in options.exact else options.precision
        fixed = specialise(graph, options.fixed)
        has_rotary = (options.opset or OPSET) >= rotary.OPSET
        steps = [s for s in self.passes if not (has_rotary and s.run is decompose_axial_rope)]
        folded = fold_params(optimise(fixed, passes_for(steps, precision)))
        verify(folded.graph)
        bound = folded.bind({value.name: weights[value.name] for value in graph.params})
        return build(
            folded.graph,
            bound,
            opset=options.opset or OPSET,
            allows_empty=False,
            half_weights=options.half_weights,
        )


def _check(options: ExportOptions, opset: int) -> None:
    if opset not in OPSETS:
        known = ", ".join(map(str, OPSETS))
        raise OptionError(f"opset {opset} cannot be written", expected=known)
    if options.precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise OptionError(f"ONNX files are not written in {options.precision}", expected=known)


def _serialised(name: str, model: Any) -> bytes:
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size > _LARGEST:
        raise OutputError(
            f"graph `{name}` is larger than an ONNX file may be",
            got=f"{size / 2**30:.1f} GiB of weights",
            hint="--weights beside",
        )
    data: bytes = model.SerializeToString()
    return data


exporter = OnnxExporter()
