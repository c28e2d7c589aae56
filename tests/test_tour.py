"""The tour of `docs/tour.py` runs, and shows what it says it shows."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tolerances import OP_FP32

TOUR = Path(__file__).resolve().parents[1] / "docs" / "tour.py"


def test_the_tour_shows_a_graph_its_passes_and_its_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tour = runpy.run_path(str(TOUR))

    worst = tour["main"]()

    shown = capsys.readouterr().out
    assert worst <= OP_FP32[0]
    for text in (
        "%0: f32[M,8] = layer_norm(%x, %blocks.0.norm.weight, %blocks.0.norm.bias, eps=1e-06)",
        "the text reads back to an equal graph: True",
        "`add`: shapes do not broadcast\n  got:      f32[M,8] and f32[M,7]",
        "tour.py:",
        "after fold_constants: nothing to do",
        "after fuse_linear_activation: \ngraph block(",
        'activation="gelu"',
        "numpy, node by node: slow: within 0.0e+00 of the reference",
        "openvino on the cpu, 1 thread, fp32: within",
    ):
        assert text in shown


def test_the_tour_runs_as_a_script() -> None:
    root = TOUR.parents[1]
    child = subprocess.run(
        [sys.executable, str(TOUR)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin"},
    )

    assert child.stderr == ""
    assert "graph block(" in child.stdout
