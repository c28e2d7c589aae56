"""`samgraph bench`, and the options that every command with a model has."""

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from samgraph.cli.main import samgraph as commands
from samgraph.cli.options import ModelChoice
from samgraph.models.sam2.model import Sam2Model
from samgraph.runtime import APPROXIMATIONS
from tests.cli.running import Outcome, call
from tests.models.sisters import POOLED_SCORES, small_sister

WITH_A_MODEL = ("segment", "everything", "track", "bench")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, weights: Path) -> Callable[..., Outcome]:
    """``bench("--json")`` times the small model at 128 pixels."""
    small = ["--model", weights, "--image-size", "128", "--runs", "1"]
    return lambda *arguments: call(monkeypatch, ["bench", *small, *arguments])


def test_graphs_are_timed_fused_and_split(bench: Callable[..., Outcome]) -> None:
    done = bench("--graphs", "memory_attention,mask_prompt", "--json")

    found = json.loads(done.text)
    rows = [(row["graph"], row["profile"], row["runs"]) for row in found["graphs"]]
    assert rows == [
        ("memory_attention", "fused", 1),
        ("mask_prompt", "fused", 1),
        ("memory_attention", "split", 1),
    ]
    assert all(row["run_seconds"] > 0 and row["compile_seconds"] > 0 for row in found["graphs"])
    assert found["reason"].startswith("openvino on the cpu")


def test_the_table_is_plain_text(bench: Callable[..., Outcome]) -> None:
    lines = bench("--graphs", "mask_prompt", "--profiles", "fused,plain").text.splitlines()

    assert lines[1].split() == ["graph", "profile", "compile", "run"]
    assert [line.split()[:2] for line in lines[2:4]] == [
        ["mask_prompt", "fused"],
        ["mask_prompt", "plain"],
    ]
    assert "\x1b" not in "".join(lines)


def test_what_each_approximation_would_gain_is_shown(
    bench: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sam2Model, "frame_graphs", ("mask_prompt",))

    done = bench()

    lines = [line.split() for line in done.text.splitlines()]
    start = lines.index([])
    assert lines[start + 1][:2] == ["approximation", "tracked"]
    assert [line[0] for line in lines[start + 2 :]] == ["exact", *APPROXIMATIONS]
    assert lines[start + 2][3] == "1.00x"


def test_a_pooled_variant_is_timed_with_its_own_attention(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.safetensors"
    small_sister(POOLED_SCORES.name).save(weights)

    once = ["--profiles", "fused", "--runs", "1", "--json"]
    done = call(monkeypatch, ["bench", "--model", weights, *once])

    graphs = {row["graph"] for row in json.loads(done.text)["graphs"]}
    assert {"image_encoder", "memory_attention_pooled"} <= graphs
    assert "memory_attention" not in graphs


def test_an_unknown_graph_is_refused(bench: Callable[..., Outcome]) -> None:
    done = bench("--graphs", "nothing")

    assert done.code == 2
    assert done.err.startswith("error: there is no graph `nothing`")


@pytest.mark.parametrize("name", WITH_A_MODEL)
def test_commands_that_load_a_model_have_the_same_options(name: str) -> None:
    command = commands.get_command(click.Context(commands), name)
    assert command is not None

    options = {option for param in command.params for option in param.opts}

    assert {"--model", "--device", "--engine", "--precision", "--threads", "--profile"} <= options
    assert "--approximate" in options


def test_help_for_the_device_says_what_is_here(
    bench: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samgraph.engines.devices._cuda_devices", lambda: 0)

    shown = " ".join(bench("--help").text.split())

    assert "auto, cpu, cuda (not here: there is no NVIDIA driver with a GPU)" in shown


def test_the_precision_of_a_choice_is_asked_for_or_the_profiles(tmp_path: Path) -> None:
    def choice(precision: str | None, profile: str | None, model: str) -> ModelChoice:
        return ModelChoice(model, "cpu", None, precision, None, profile, None)

    (tmp_path / "a.profiles.toml").write_text('[profile.default]\nprecision = "bf16"\n')
    weights = str(tmp_path / "a.pt")

    assert choice(None, None, "samgraph-nano").precision is None
    assert choice("bf16", None, "samgraph-nano").precision == "bf16"
    assert choice(None, None, weights).precision == "bf16"
    assert choice("fp32", None, weights).precision == "fp32"
    assert choice(None, "split", weights).precision is None


def test_products_are_timed_beside_the_rate_of_the_machine(bench: Callable[..., Outcome]) -> None:
    found = json.loads(bench("--graphs", "memory_encoder", "--profile", "--json").text)[
        "memory_encoder"
    ]

    assert found["peak_gflops"] > 0
    assert {"conv2d", "linear"} & {row["op"] for row in found["ops"]}
    for row in found["ops"]:
        assert row["multiply_adds"] > 0
        assert row["bytes"] > 0
        assert row["seconds"] > 0


def test_the_table_of_products_says_what_share_of_the_rate_each_has(
    bench: Callable[..., Outcome],
) -> None:
    lines = bench("--graphs", "memory_attention", "--profile").text.splitlines()

    assert lines[0].startswith("memory_attention: openvino on the cpu")
    assert lines[1].split()[:3] == ["op", "count", "M"]
    assert all("%" in line for line in lines[2:])
    assert len(lines) > 4
