"""Files in fp16: half the size, float32 at the edges and in the decoder, masks that stay."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.exporters import ExportOptions
from samgraph.models.exporting import export_model
from tests import tolerances
from tests.models.exported import SIZES, manifest_of, random_inputs, run_onnx
from tests.predict.models import tiny_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
GRAPHS = ("image_encoder", "decode_points", "track")
HALF = ExportOptions(precision="fp16", half_weights=True)
WEIGHTS = ExportOptions(half_weights=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, options in (("fp32", ExportOptions()), ("fp16", HALF), ("weights", WEIGHTS)):
        found[name] = tmp_path_factory.mktemp(name)
        export_model(tiny_model(), "onnx", found[name], options, only=GRAPHS)
    return found


def computed_dtypes(path: Path, op: str) -> set[str]:
    """The dtypes of the results of an operator."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True, data_prop=True)
    types: dict[str, Any] = {v.name: v.type.tensor_type.elem_type for v in model.graph.value_info}
    kinds = {
        types[n.output[0]] for n in model.graph.node if n.op_type == op and n.output[0] in types
    }
    return {onnx.TensorProto.DataType.Name(kind) for kind in kinds}


@pytest.mark.parametrize("kind", ["fp16", "weights"])
def test_files_take_half_the_space_and_check(folders: dict[str, Path], kind: str) -> None:
    for name in GRAPHS:
        full, half = (folders[k] / f"{name}.onnx" for k in ("fp32", kind))

        onnx.checker.check_model(onnx.load(half), full_check=True)
        assert half.stat().st_size < 0.6 * full.stat().st_size
    expected = "fp16" if kind == "fp16" else "fp16-weights"
    assert manifest_of(folders[kind])["precision"] == expected


def test_the_decoder_computes_in_float32_and_the_encoder_does_not(
    folders: dict[str, Path],
) -> None:
    half = folders["fp16"]

    assert computed_dtypes(half / "image_encoder.onnx", "MatMul") == {"FLOAT16"}
    assert computed_dtypes(half / "decode_points.onnx", "MatMul") == {"FLOAT"}
    assert computed_dtypes(half / "track.onnx", "MatMul") == {"FLOAT", "FLOAT16"}
    assert computed_dtypes(folders["weights"] / "track.onnx", "MatMul") == {"FLOAT"}


@pytest.mark.parametrize("kind", ["fp16", "weights"])
def test_masks_are_those_of_float32(folders: dict[str, Path], kind: str) -> None:
    rng, found = np.random.default_rng(4), {}
    inputs = {
        name: random_inputs(graph, SIZES[1] | {"B": 1}, rng) for name, graph in graphs_of(folders)
    }
    for k in ("fp32", kind):
        features = run_onnx(folders[k] / "image_encoder.onnx", inputs["image_encoder"])
        masks = run_onnx(folders[k] / "decode_points.onnx", {**inputs["decode_points"], **features})
        tracked = run_onnx(folders[k] / "track.onnx", {**inputs["track"], **features})
        found[k] = (masks["masks"] > 0, tracked["best_mask"] > 0, tracked["new_memory"])

    for expected, actual in zip(found["fp32"][:2], found[kind][:2], strict=True):
        both, any_of = (expected & actual).sum(), (expected | actual).sum()
        assert both >= tolerances.EXPORTED_FP16_IOU * any_of
    memory, half_memory = found["fp32"][2], found[kind][2]
    assert half_memory.dtype == np.float32
    assert np.abs(memory - half_memory).max() <= tolerances.EXPORTED_FP16 * np.abs(memory).max()


def graphs_of(folders: dict[str, Path]) -> Any:
    return manifest_of(folders["fp32"])["graphs"].items()
