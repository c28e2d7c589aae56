"""`samgraph graph`: graphs before and after passes, the list of passes, and how ops run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from samgraph.engines import find_engine
from samgraph.graph import parse_graph
from samgraph.models.nano.config import NANO
from samgraph.models.sam2.graphs import TRACES
from samgraph.runtime import CompileOptions, Session
from tests.cli.running import Outcome, call

Command = Callable[..., Outcome]


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Command:
    return lambda *arguments: call(
        monkeypatch, ["graph", *arguments, "--model", NANO.name, "--image-size", "128"]
    )


def test_after_shows_what_the_engine_compiles(graph: Command) -> None:
    done = graph("mask_prompt", "--after")

    traced = TRACES["mask_prompt"](NANO.at_size(128))
    session = Session("cpu", CompileOptions(cache=False))
    assert done.text.strip() == str(session.optimise(traced))
    assert str(parse_graph(graph("mask_prompt").text)) == str(traced)


def test_passes_without_a_name_lists_those_of_an_engine(graph: Command) -> None:
    lines = graph("--passes").text.splitlines()
    off = graph("--passes", "--profile", "plain").text

    names = [line.split()[0] for line in lines[1:]]
    assert names == [*(step.name for step in find_engine("openvino").passes), "fold_params"]
    assert lines[0].startswith("# openvino on the cpu")
    assert any(line.endswith("[required]") for line in lines)
    assert any(line.endswith("[fp32 only]") for line in lines)
    assert off.count("off]") >= 20
    assert graph("--passes", "--engine", "reference").text.count("\n") == 1


def test_passes_with_a_name_shows_the_graph_after_each(graph: Command) -> None:
    shown = graph("mask_prompt", "--passes").text

    assert shown.startswith("# drop_unused\ngraph mask_prompt(")
    assert "# resize_to_matmul\n" in shown
    last = shown.split("# fold_params\n")[-1].strip()
    assert last == graph("mask_prompt", "--after").text.strip()


def test_dispatch_says_how_each_op_runs(graph: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call(monkeypatch, ["graph", "mask_prompt", "--dispatch", "--model", "sam2.1-tiny"])
    rows = {line.split()[0]: line for line in done.text.splitlines()}

    assert rows["resize"].split()[1:3] == ["1", "0"]
    assert rows["resize"].endswith("resize_to_matmul -> matmul")
    assert rows["conv2d"].endswith("native")
    assert "1 fp32" in rows["conv2d"]
    attention = graph("memory_attention", "--dispatch").text
    assert "decompose_axial_rope -> " in attention


@pytest.mark.parametrize(
    ("model", "name"),
    [("sam2.1-tiny", "attend_bank"), ("efficienttam-s-1", "memory_attention_pooled")],
)
def test_graphs_of_tracking_are_shown_too(
    monkeypatch: pytest.MonkeyPatch, model: str, name: str
) -> None:
    done = call(monkeypatch, ["graph", name, "--model", model, "--cost", "--image-size", "128"])

    assert done.code == 0, done.err
    assert "attention" in done.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "error: there is no graph `nothing`"),
        (("decode", "--after", "--engine", "tpu"), "error: there is no engine `tpu`"),
        (("decode", "--after", "--device", "tpu"), "error: there is no device `tpu`"),
        (("decode", "--after", "--profile", "odd"), "error: there is no profile `odd`"),
    ],
)
def test_wrong_names_are_refused(graph: Command, arguments: tuple[str, ...], message: str) -> None:
    done = graph(*arguments)

    assert done.code == 2
    assert done.err.startswith(message)


def test_a_profile_may_be_a_file(graph: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[profile.mine]\nwithout = ["resize_to_matmul"]\n', encoding="utf-8")

    shown = graph("mask_prompt", "--after", "--profile", path).text

    shrunk = 'how="bilinear"'
    assert shrunk in shown
    assert shrunk not in graph("mask_prompt", "--after").text
