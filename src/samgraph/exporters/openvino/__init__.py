"""OpenVINO IR: `NAME.xml` with its weights in `NAME.bin`, for each graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openvino

from samgraph.engines.native import NATIVE_PASSES
from samgraph.engines.openvino.engine import build
from samgraph.engines.openvino.passes.expose_channels_last import expose_channels_last
from samgraph.engines.openvino.pipeline import PIPELINE
from samgraph.errors import OptionError, OutputError
from samgraph.exporters.protocol import ExportOptions, Written
from samgraph.graph.graph import Graph
from samgraph.graph.types import Array
from samgraph.graph.verifier import verify
from samgraph.passes import fold_params, optimise, passes_for
from samgraph.passes.pipeline import Step
from samgraph.passes.specialise import specialise
from samgraph.untrusted.text import shown

# Native kernels are not in a file, and inputs have no strides there.
_PASSES = tuple(
    step for step in PIPELINE if step not in NATIVE_PASSES and step.run is not expose_channels_last
)


@dataclass(frozen=True, slots=True)
class OpenVinoExporter:
    """Writes OpenVINO models. A device that runs one chooses the precision it computes in."""

    name: str = "openvino"
    passes: tuple[Step, ...] = _PASSES

    def export(
        self,
        graphs: Mapping[str, Graph],
        weights: Mapping[str, Array],
        folder: Path,
        options: ExportOptions,
    ) -> Written:
        """Write `NAME.xml` and `NAME.bin` for each graph; of fp16, weights alone."""
        if options.opset is not None:
            raise OptionError("OpenVINO files have no opset to choose", got=options.opset)
        written: dict[str, Path] = {}
        data: list[Path] = []
        is_half = options.half_weights or options.precision == "fp16"
        for name, graph in graphs.items():
            path = folder / f"{name}.xml"
            try:
                openvino.save_model(
                    self.model(graph, weights, options), path, compress_to_fp16=is_half
                )
            except (RuntimeError, OSError) as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                what = f"`{shown(str(path))}` cannot be written"
                raise OutputError(what, got=lines[-1]) from error
            written[name] = path
            data.append(path.with_suffix(".bin"))
        return Written(written, tuple(data), {"openvino": openvino.get_version().split("-")[0]})

    def model(self, graph: Graph, weights: Mapping[str, Array], options: ExportOptions) -> Any:
        """The `openvino.Model` of one graph, with named inputs and outputs."""
        fixed = specialise(graph, options.fixed)
        folded = fold_params(optimise(fixed, passes_for(self.passes)))
        verify(folded.graph)
        bound = folded.bind({value.name: weights[value.name] for value in graph.params})
        model: Any = build(folded.graph, bound)
        names = [value.name for value in folded.graph.inputs]
        for port, name in zip(model.inputs, names, strict=True):
            port.get_tensor().set_names({name})
        for port, (name, _) in zip(model.outputs, folded.graph.outputs, strict=True):
            port.get_tensor().set_names({name})
        return model


exporter = OpenVinoExporter()
