"""`samgraph graph`: a graph in one piece, and split at its marks."""

import pytest

from samgraph.graph import parse_graph
from tests.cli.running import call

_MODEL = ["--model", "samgraph-nano", "--image-size", "64"]


@pytest.mark.parametrize("stage", ["--before", "--after"])
def test_a_split_graph_is_shown_stage_by_stage(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ["graph", "memory_attention", *_MODEL, stage]

    whole = call(monkeypatch, shown)
    split = call(monkeypatch, [*shown, "--profile", "split"])

    assert (whole.code, split.code) == (0, 0)
    assert whole.text.count("graph memory_attention") == 1
    assert split.text.count("graph memory_attention.") == 16
    assert "memory_attention.layers.1.cross_attn_image.k_rotated=%" in split.text


def test_a_split_graph_reads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    text = call(monkeypatch, ["graph", "memory_attention", *_MODEL, "--profile", "split"]).text

    last = text[text.rindex("graph memory_attention.") :]

    assert [name for name, _ in parse_graph(last).outputs] == ["embedding"]


def test_a_split_graph_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    found = call(
        monkeypatch, ["graph", "decode", *_MODEL, "--profile", "split", "--svg", "never.svg"]
    )

    assert found.code == 2
    assert "not drawn in one file" in found.err
