"""`samgraph export`: files of a model, and refusals in one sentence."""

from pathlib import Path

import pytest

from tests.cli.running import call, weights_file
from tests.models.exported import manifest_of

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights_file(tmp_path_factory.mktemp("weights"))


def test_it_writes_the_files_of_a_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weights: Path
) -> None:
    target = tmp_path / "out"
    arguments = ["export", weights, "--to", "onnx", target, "--fix", "N=1,F=7"]

    outcome = call(monkeypatch, [*arguments, "--graph", "mask_prompt", "--image-size", 128])

    assert outcome.code == 0, outcome.err
    assert [line.split()[:2] for line in outcome.text.splitlines()] == [
        ["wrote", str(target / "mask_prompt.onnx")],
        ["wrote", str(target / "manifest.json")],
    ]
    manifest = manifest_of(target)
    assert manifest["fixed"] == {"N": 1, "F": 7}
    assert manifest["graphs"]["mask_prompt"]["inputs"][0]["shape"] == [1, 1, 128, 128]


def test_without_a_model_it_takes_the_built_in_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = call(monkeypatch, ["export", "--to", "onnx", tmp_path, "--graph", "mask_prompt"])

    assert outcome.code == 0, outcome.err
    assert manifest_of(tmp_path)["model"] == "samgraph-nano"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "tensorflow"], "error: there is no exporter `tensorflow`"),
        (["--fix", "X=1"], "error: no graph has a length `X`"),
        (["--fix", "N"], "error: `N` is not a length"),
        (["--fix", "N=1,N=2"], "error: `N=2` is not a length"),
        (["--fix", "N=-1"], "error: `N=-1` is not a length"),
        (["--fix", "N=0"], "error: a fixed length is at least 1, not N=0"),
        (["--opset", "3"], "error: opset 3 cannot be written"),
        (["--graph", "nothing"], "error: there is no graph `nothing`"),
        (["a", "b"], "error: too many arguments"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    outcome = call(monkeypatch, ["export", tmp_path / "out", *arguments])

    assert outcome.code == 2
    assert outcome.err.splitlines()[0] == message


def test_a_folder_that_cannot_be_written_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")

    outcome = call(monkeypatch, ["export", tmp_path / "file"])

    assert outcome.code == 2
    assert "file` cannot be made" in outcome.err.splitlines()[0]
