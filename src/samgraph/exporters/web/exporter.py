"""The exporter: page, engine, runtime and graphs as one static folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from samgraph.engines.onnx import PIPELINE
from samgraph.errors import OptionError
from samgraph.exporters.onnx import OnnxExporter
from samgraph.exporters.protocol import ExportOptions, Written, write_file
from samgraph.exporters.web.runtime import read_runtime
from samgraph.exporters.web.site import WORKER, page_files, service_worker
from samgraph.exporters.web.weights import HalfWeights
from samgraph.graph.graph import Graph
from samgraph.graph.types import Array
from samgraph.passes.pipeline import Step

WEIGHTS = "model/weights.f16"
LATER = ("manifest.json",)
NEEDED = (
    "image_encoder", "decode_points", "decode", "mask_prompt", "memory_encoder", "memory_attention",
)  # fmt: skip
_UNUSED = "track"  # the page runs its parts, one object after another


@dataclass(frozen=True, slots=True)
class WebExporter:
    """Writes a static folder: page, engine, ONNX Runtime, and the graphs with weights in fp16."""

    name: str = "web"
    passes: tuple[Step, ...] = PIPELINE
    models: OnnxExporter = field(default_factory=OnnxExporter)

    def export(
        self,
        graphs: Mapping[str, Graph],
        weights: Mapping[str, Array],
        folder: Path,
        options: ExportOptions,
    ) -> Written:
        """Write the folder; the service worker, which lists its files, last."""
        missing = [name for name in NEEDED if name not in graphs]
        if missing or options.fixed:
            what = f"no graph `{missing[0]}`" if missing else "fixed lengths"
            hint = "a whole checkpoint, without --graph and --fix"
            raise OptionError("the page needs all graphs, with any length", got=what, hint=hint)
        if options.precision != "fp32":
            raise OptionError(
                "the page computes in float32; its weights are stored in fp16 anyway",
                got=options.precision,
            )
        wanted = replace(options, half_weights=False)  # the page makes floats of halves itself
        files = page_files()
        files |= {f"runtime/{name}": data for name, data in read_runtime(options.runtime).items()}
        halves, chosen = HalfWeights(), [name for name in graphs if not name.startswith(_UNUSED)]
        for name in chosen:
            model = self.models.model(name, graphs[name], weights, wanted)
            halves.take(model)
            files[f"model/{name}.onnx"] = model.SerializeToString()
        files[WEIGHTS] = halves.data()
        files[WORKER] = service_worker(files, LATER)
        for path in {folder / name for name in files}:
            path.parent.mkdir(parents=True, exist_ok=True)
        written = {name: write_file(folder / name, data) for name, data in files.items()}
        found = {name: written.pop(f"model/{name}.onnx") for name in chosen}
        return Written(found, tuple(written.values()), {"weights": "fp16"})


exporter = WebExporter()
