"""Exported files of a small model: written once, run by ONNX Runtime, fed with random inputs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from samgraph.graph import Array

SIZES = (
    {"B": 1, "N": 1, "P": 1, "F": 1, "Q": 1},
    {"B": 2, "N": 3, "P": 4, "F": 3, "Q": 5},
    {"B": 1, "N": 2, "P": 2, "F": 2, "Q": 0},
)


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of an export."""
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return found


def random_inputs(
    graph: Mapping[str, Any], sizes: Mapping[str, int], rng: np.random.Generator
) -> dict[str, Array]:
    """Inputs that fit a graph of the manifest."""
    inputs: dict[str, Array] = {}
    for value in graph["inputs"]:
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in value["shape"]]
        if value["dtype"] == "bool":
            array = rng.integers(0, 2, shape).astype(bool)
        elif value["dtype"] == "int64":
            array = rng.integers(*((-2, 4) if value["name"] == "labels" else (0, 7)), shape)
        elif value["name"] == "points":
            array = rng.uniform(0, 100, shape).astype(np.float32)
        else:
            array = rng.standard_normal(shape).astype(np.float32)
        inputs[value["name"]] = array
    return inputs


def run_onnx(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of an ONNX file by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))
