"""The table, the plot and the page of `benchmarks/all.py`, from results made up here."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return script("tables")


@pytest.fixture(scope="module")
def targets() -> ModuleType:
    return script("targets")


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
        tables.fill_page(FOLDER / "README.md", "new")


def tracked(results: dict[str, Any], **seconds: float) -> dict[str, Any]:
    """The results with a tracked frame of so many objects in so many seconds, ours."""
    for job, median in seconds.items():
        results["seconds"][job] = {"samgraph fp32": {"median": median}}
    return results


def test_targets_are_held_against_the_best_peer_of_the_same_precision(targets: ModuleType) -> None:
    found = tracked(results(), track_1=1.0, track_4=2.2, track_16=9.0)
    encode = {"samgraph fp32": 1.0, "torch eager": 1.5, "OpenVINO": 1.2, "torch bf16": 0.1}
    found["seconds"]["image_encoder"] = {k: {"median": v} for k, v in encode.items()}

    rows = {row.title: (row.found, row.reached >= 1) for row in targets.verdicts(found)}

    assert rows["encode"] == ("1.20x OpenVINO", False)
    assert rows["4 objects, times one"] == ("2.20", True)
    assert rows["16 objects, times one"] == ("9.00", False)
    assert rows["installed size"] == ("0.50 of torch eager", False)
    assert targets.targets_table(found)[-1].startswith("Largest gaps: installed size")


def test_growth_has_a_panel_per_quantity_that_was_measured(tables: ModuleType) -> None:
    found = tracked(results(), track_1=1.0, track_4=2.0, size_256=0.1)

    drawn = ElementTree.fromstring(tables.growth(found))

    lines = [line for line in drawn if line.tag.endswith("polyline")]
    titles = [text.text for text in drawn if text.get("font-weight") == "bold"]
    assert len(lines) == 2
    assert titles == ["a tracked frame, by input size", "a tracked frame, by objects"]


def test_installed_sizes_count_what_is_needed_too() -> None:
    starts = script("starts")

    found = starts.with_requirements(("samgraph",))

    assert {"samgraph", "numpy", "openvino"} <= set(found)
    assert starts.installed_megabytes(("samgraph",)) > starts.installed_megabytes(("numpy",))
