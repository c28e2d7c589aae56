"""The table, the plot and the page of `benchmarks/all.py`, from results made up here."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "tables.py"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results() -> dict[str, Any]:
    def times(median: float) -> dict[str, float]:
        return {"median": median, "low": median / 2, "high": median * 2, "runs": 3}

    ours, theirs = "samgraph fp32", "torch eager"
    return {
        "machine": {"processor": "P", "cores": 2, "features": ["avx2"], "load": 0.5},
        "settings": {"model": "m", "threads": 2, "kind": "wall", "rounds": 3},
        "seconds": {"decode": {ours: times(0.05), theirs: times(0.15)}, "click": {ours: times(1)}},
        "peak_mb": {ours: 100.0, theirs: 200.0},
        "installed_mb": {ours: 10, theirs: 20, "gone": 0},
        "versions": {ours: {"numpy": "2"}, theirs: {"torch": "3"}, "gone": {}},
        "failed": {"gone": "decode: peer gone died"},
    }


def test_a_row_per_job_with_ratios_and_what_failed(tables: ModuleType) -> None:
    lines = tables.table(results()).splitlines()

    assert lines[2] == "| ms | samgraph fp32 | torch eager |"
    assert "| decode | 50 (25 to 100) | 150 (75 to 300), 3.00x |" in lines
    assert "| click | 1000 (500 to 2000) |  |" in lines
    assert "* gone: not measured (decode: peer gone died)" in lines


def test_the_plot_is_svg_with_a_bar_per_measurement(tables: ModuleType) -> None:
    drawn = ElementTree.fromstring(tables.bars(results()))

    widths = [float(bar.attrib["width"]) for bar in drawn if bar.tag.endswith("rect")]
    assert widths == [pytest.approx(tables.WIDTH / 3, abs=0.1), tables.WIDTH, tables.WIDTH]


def test_the_table_goes_between_the_marks_of_a_page(tables: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"a\n{tables.BEGIN}\nold\n{tables.END}\nb\n", encoding="utf-8")

    tables.fill_page(page, "new")

    assert page.read_text(encoding="utf-8") == f"a\n{tables.BEGIN}\nnew\n{tables.END}\nb\n"
    with pytest.raises(SystemExit, match="has no"):
        tables.fill_page(SCRIPT.with_name("README.md"), "new")
