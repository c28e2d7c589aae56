"""Export of a model: its graphs as files, and a manifest that says how to call them."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from samgraph.errors import CheckpointError, OptionError, OutputError
from samgraph.exporters import ExportOptions, Written, find_exporter, write_file
from samgraph.graph import Graph
from samgraph.graph.graph import Value
from samgraph.graph.types import numpy_dtype
from samgraph.models import find_family
from samgraph.models.compiled import computable
from samgraph.models.family import ExportPlan, SegmentationModel
from samgraph.passes.specialise import specialise
from samgraph.untrusted.text import shown
from samgraph.version import __version__

MANIFEST = "manifest.json"
FORMAT_VERSION = 1


def export_model(
    model: SegmentationModel,
    to: str,
    folder: str | os.PathLike[str],
    options: ExportOptions | None = None,
    *,
    only: tuple[str, ...] = (),
) -> list[Path]:
    """Write the graphs of a model to a folder, and `manifest.json` last; gives all files.

    `only` names the graphs to write; all of them if empty.
    """
    options, target = options or ExportOptions(), Path(folder)
    exporter = find_exporter(to)
    plan = export_plan(model, options, only)
    _make_folder(target)
    (target / MANIFEST).unlink(missing_ok=True)  # a folder with a manifest is whole
    written = exporter.export(plan.graphs, model.weights, target, plan.options(options))
    plan = plan.with_graphs({name: plan.graphs[name] for name in written.graphs})
    data = manifest(model, to, plan, options, written)
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    return [*written.files, write_file(target / MANIFEST, text.encode())]


def export_plan(
    model: SegmentationModel, options: ExportOptions, only: tuple[str, ...] = ()
) -> ExportPlan:
    """What is exported of a model, with fixed lengths put in.

    Of an image-only checkpoint that is what images need.

    Raises:
        CheckpointError: It lacks weights of a graph that was named, or that images need.
    """
    family = find_family(model.family)
    if family.export_plan is None:
        raise OptionError(f"models of family `{family.name}` cannot be exported")
    plan = family.export_plan(model.config, model.weights)
    unknown = [name for name in only if name not in plan.graphs]
    if unknown:
        known = ", ".join(plan.graphs)
        raise OptionError(f"there is no graph `{shown(unknown[0])}`", expected=known)
    check_fixed(options.fixed, plan.symbols)
    kept = {}
    for name, graph in plan.graphs.items():
        if not only or name in only:
            try:
                whole = computable(graph, model.weights)
            except CheckpointError:
                if only or not model.report.is_image_only:
                    raise
                continue  # of an image-only checkpoint, what only videos need
            kept[name] = specialise(whole, options.fixed)
    return plan.with_graphs(kept)


def check_fixed(fixed: Mapping[str, int], symbols: Mapping[str, str]) -> None:
    """Raise `OptionError` for a symbol that no graph has, and for lengths below one."""
    for name, length in fixed.items():
        if name not in symbols:
            known = ", ".join(f"{symbol} ({text})" for symbol, text in symbols.items())
            raise OptionError(f"no graph has a length `{shown(name)}`", expected=known)
        if length < 1:
            raise OptionError(f"a fixed length is at least 1, not {name}={length}")


def manifest(
    model: SegmentationModel,
    to: str,
    plan: ExportPlan,
    options: ExportOptions,
    written: Written,
) -> dict[str, Any]:
    """The contents of `manifest.json`; see docs/onnx.md."""
    folder = Path(os.path.commonpath([path.parent for path in written.files]))
    weights_only = options.half_weights and options.precision == "fp32"
    precision = "fp16-weights" if weights_only else options.precision
    return {
        "format": f"samgraph-{to}",
        "version": FORMAT_VERSION,
        "samgraph": __version__,
        "model": model.config.name,
        "family": model.family,
        "precision": precision,
        **written.details,
        "symbols": {n: text for n, text in plan.symbols.items() if n not in options.fixed},
        "fixed": dict(options.fixed),
        "graphs": {
            name: _graph(name, graph, plan, written.graphs[name].relative_to(folder))
            for name, graph in plan.graphs.items()
        },
        "files": {path.relative_to(folder).as_posix(): _file(path) for path in written.files},
        "preprocessing": _preprocessing(model),
        "constants": dict(plan.constants),
        "steps": dict(plan.steps),
    }


def _graph(name: str, graph: Graph, plan: ExportPlan, path: Path) -> dict[str, Any]:
    return {
        "file": path.as_posix(),
        "about": plan.about.get(name, ""),
        "inputs": [_value(value.name, value, plan.values) for value in graph.inputs],
        "outputs": [_value(key, value, plan.values) for key, value in graph.outputs],
    }


def _value(name: str, value: Value, values: Mapping[str, str]) -> dict[str, Any]:
    shape = [dim if isinstance(dim, int) else str(dim) for dim in value.type.shape]
    dtype = str(numpy_dtype(value.type.dtype))
    return {"name": name, "dtype": dtype, "shape": shape, "about": values.get(name, "")}


def _file(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _preprocessing(model: SegmentationModel) -> dict[str, Any]:
    found = model.preprocessing
    return {
        "size": [found.size, found.size],
        "layout": "NCHW",
        "channels": "RGB",
        "resize": "to a square, the aspect ratio is not kept",
        "image_filter": "bilinear with antialias (triangle filter), on floats",
        "frame_filter": "bicubic with antialias (a = -0.5), on bytes, rounded, as Pillow does",
        "scale": "1/255",
        "mean": list(found.mean),
        "std": list(found.std),
        "formula": "(pixel / 255 - mean) / std",
    }


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"`{shown(str(folder))}` cannot be made", got=reason) from error
