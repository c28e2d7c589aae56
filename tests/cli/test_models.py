"""`samgraph models`: what can be loaded by name."""

import json
from pathlib import Path

import pytest

from tests.checkpoint.built_in import put_in_place
from tests.cli.running import call


def test_the_built_in_model_is_first_with_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put_in_place(tmp_path, monkeypatch)

    first, *others = json.loads(call(monkeypatch, ["models", "--json"]).out)

    assert first["name"] == "samgraph-nano"
    assert first["built_in"] is True
    assert first["path"] == str(path)
    assert first["megabytes"] == round(path.stat().st_size / 1e6)
    assert first["quality"] == {"box": 0.5, "1 click": 0.25, "5 clicks": 0.75}
    assert len(others) == 8 + 9 + 1
    assert {row["licence"] for row in others[:-1]} == {"Apache-2.0"}
    assert (others[-1]["name"], others[-1]["licence"]) == ("medsam2", None)
    assert next(row["name"] for row in others if not row["downloads"]) == "edgetam"
    assert not any(row["built_in"] or row["quality"] for row in others)


def test_the_table_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(tmp_path, monkeypatch)

    lines = call(monkeypatch, ["models"]).text.splitlines()

    assert " ".join(lines[0].split()) == "name parameters size here box 1 click 5 clicks J"
    assert lines[1].split()[0] == "samgraph-nano"
    assert lines[1].split()[-5:] == ["built", "in", "0.50", "0.25", "0.75"]
    assert lines[2].split() == ["sam2-tiny", "38.9", "M", "156", "MB", "no"]
    assert lines[10].split() == ["edgetam", "13.9", "M", "56", "MB", "by", "path"]
    assert lines[19].split() == ["medsam2", "39.0", "M", "156", "MB", "by", "path"]
    assert all("…" not in line for line in lines)
    assert "licence of the weights: Apache-2.0" in lines
    assert "licence of medsam2: see its authors' page" in lines


def test_a_missing_file_has_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(tmp_path, monkeypatch).unlink()

    first = json.loads(call(monkeypatch, ["models", "--json"]).out)[0]

    assert first["path"] is None
