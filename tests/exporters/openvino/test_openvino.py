"""OpenVINO files: named inputs and outputs, and the numbers of our own engine."""

from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest

from samgraph.errors import OptionError
from samgraph.exporters import ExportOptions
from samgraph.models.exporting import export_model, export_plan
from tests import tolerances
from tests.models.exported import SIZES, manifest_of, random_inputs
from tests.predict.models import tiny_model

GRAPHS = ("memory_encoder", "memory_attention")


def run(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a file by name."""
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = openvino.Core().compile_model(path, "CPU", hints)
    found = compiled(inputs)
    return {port.get_any_name(): np.array(found[port]) for port in compiled.outputs}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_file_computes_what_our_engine_does(tmp_path: Path, name: str) -> None:
    model = tiny_model()
    export_model(model, "openvino", tmp_path, only=(name,))
    manifest = manifest_of(tmp_path)
    compiled = model.session.compile(
        export_plan(model, ExportOptions()).graphs[name], model.weights
    )

    assert manifest["format"] == "samgraph-openvino"
    assert set(manifest["files"]) == {f"{name}.xml", f"{name}.bin"}
    for sizes in SIZES[:2]:
        inputs = random_inputs(manifest["graphs"][name], sizes, np.random.default_rng(5))
        expected, found = compiled.run_numpy(inputs), run(tmp_path / f"{name}.xml", inputs)

        assert found.keys() == expected.keys()
        for key, want in expected.items():
            assert np.abs(found[key] - want).max() <= tolerances.EXPORTED * np.abs(want).max()


def test_weights_of_fp16_take_half_the_space(tmp_path: Path) -> None:
    sizes = []
    for options in (ExportOptions(), ExportOptions(half_weights=True)):
        export_model(tiny_model(), "openvino", tmp_path, options, only=("memory_encoder",))
        sizes.append((tmp_path / "memory_encoder.bin").stat().st_size)

    assert sizes[1] < 0.6 * sizes[0]


def test_an_opset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no opset to choose"):
        export_model(tiny_model(), "openvino", tmp_path, ExportOptions(opset=21))
