"""The benchmark of our layer's cost runs; its figures are read by people, on a quiet machine."""

import math
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "overhead.py"


def test_the_benchmark_compares_the_same_bits(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = runpy.run_path(str(SCRIPT))

    figures = benchmark["main"](runs=5, compilations=1)

    shown = capsys.readouterr().out
    assert "100 nodes" in shown
    assert "same bits: True" in shown
    assert all(math.isfinite(figure) for figure in figures)
