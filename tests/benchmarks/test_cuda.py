"""`benchmarks/cuda.py` on the CPU: every figure of a sister model is found, and none fails."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "cuda.py"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("benchmarks_cuda", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_random_weights_of_edgetam_keep_values_small(cuda: Any) -> None:
    """Or bf16 is off by nearly all of them, right as the graph may be."""
    report = cuda.Report("cpu", frames=3, image_size=256)
    core = report.load(cuda.random_weights("edgetam"), config="edgetam")
    image = cuda.part_inputs(core, 1, "cpu")["image_encoder"]["image"]

    found = core.run("image_encoder", image=image)

    assert all(0.1 < float(value.std()) < 20 for value in found.values())


@pytest.mark.parametrize("name", ["edgetam", "efficienttam-ti-1"])
def test_a_trial_without_a_gpu(cuda: Any, name: str, tmp_path: Path) -> None:
    report = cuda.Report("cpu", frames=3, image_size=256)

    report.part(name, lambda: cuda.run_model(report, name, set()))
    report.write(tmp_path)

    lines = (tmp_path / "cuda.md").read_text()
    assert "failed" not in lines
    assert [key for key in report.found if not key.startswith("error of")] == [
        "device",
        "torch",
        f"image encoder, {name}, ms",
        f"memory attention, {name}, ms",
        f"mask decoder, {name}, ms",
        f"memory encoder, {name}, ms",
        f"frames per second, {name}",
        f"frames per second, {name}, masks downloaded",
    ]
    assert f"error of attend_bank.embedding, {name}" in report.found
