"""A graph restored ahead: used only under its own key; whatever the note says, the same bits."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.engines import find_engine
from samgraph.engines.openvino.engine import OpenVinoEngine
from samgraph.graph.types import Array
from samgraph.runtime import CompileOptions, Session
from samgraph.runtime.ahead import Ahead
from tests.runtime.graphs import mlp

X = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)
FILE = ("weights.pt", 100, 7)


def start(
    folder: Path, weights: Mapping[str, Array] | None = None, threads: int = 1, *parts: object
) -> bytes:
    """The bits of a run of a new session that restores ahead what the last one used."""
    graph, own = mlp()
    session = Session("cpu", CompileOptions(cache_dir=folder, threads=threads))
    session.ahead = Ahead(folder, *(parts or FILE))
    session.ahead.begin(find_engine("openvino"))
    return session.compile(graph, weights or own).run_numpy(x=X)["y"].tobytes()


def other_weights() -> dict[str, Array]:
    return {name: array + 1 for name, array in mlp()[1].items()}


def notes(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "starts.json").read_text())
    return found


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`ahead` for each program that was taken, `usual` for each restored with its key known."""
    ways: list[str] = []
    take, restore = Ahead.take, Session._restore

    def taken(self: Ahead, *given: Any) -> Any:
        found = take(self, *given)
        ways.extend(["ahead"] if found is not None else [])
        return found

    def restored(self: Session, data: Any) -> Any:
        found = restore(self, data)
        ways.extend(["usual"] if found is not None else [])
        return found

    monkeypatch.setattr(Ahead, "take", taken)
    monkeypatch.setattr(Session, "_restore", restored)
    return ways


def test_the_second_start_takes_what_was_restored_ahead(tmp_path: Path, used: list[str]) -> None:
    first = start(tmp_path)
    assert used == []

    assert start(tmp_path) == first
    assert used == ["ahead"]


def test_a_warm_start_writes_nothing(tmp_path: Path) -> None:
    start(tmp_path)
    before = (tmp_path / "starts.json").stat()
    start(tmp_path)

    assert (tmp_path / "starts.json").stat() == before


def test_other_weights_behind_the_same_name_are_compiled_anew(
    tmp_path: Path, used: list[str]
) -> None:
    """As of a file that was replaced, with its size and time forged."""
    first = start(tmp_path)
    second = start(tmp_path, other_weights())

    assert used == []
    assert second != first
    assert second == start(tmp_path / "fresh", other_weights())
    assert start(tmp_path, other_weights()) == second  # the note is that of the new entry
    assert used == ["ahead"]


def test_other_options_than_noted_are_not_taken(tmp_path: Path, used: list[str]) -> None:
    first = start(tmp_path)
    start(tmp_path, None, 2)
    assert used == []

    (name,) = notes(tmp_path)
    line = notes(tmp_path)[name]
    assert line[3] == 2
    line[3] = 1  # the entry of two threads, restored with one
    (tmp_path / "starts.json").write_text(json.dumps({name: line}))

    assert start(tmp_path, None, 2) == first
    assert used == ["usual"]


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "[]", "{}", '{"a": 1}', '{"a": [1, 2, 3, 4, 5]}',
        '{"a": ["mlp", "../../x", "fp32", 1, 1]}', '{"a": ["mlp", "k", "fp32", 0, 1]}',
        '{"a": ["mlp", "k", "fp33", 1, 1]}', '{"a": ["mlp", "k", "fp32", 1]}', "x" * (1 << 17),
    ],
)  # fmt: skip
def test_damaged_notes_are_none(tmp_path: Path, text: str, used: list[str]) -> None:
    first = start(tmp_path)
    (tmp_path / "starts.json").write_text(text)

    assert start(tmp_path) == first
    assert used == ["usual"]
    assert len(notes(tmp_path)) == 1


def test_a_damaged_entry_is_a_warning_and_a_new_compilation(
    tmp_path: Path, used: list[str]
) -> None:
    first = start(tmp_path)
    (path,) = (tmp_path / "graphs").glob("*.blob")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    with pytest.warns(UserWarning, match="is damaged; compiling anew"):
        assert start(tmp_path) == first

    assert used == []


def test_an_entry_that_is_gone_is_compiled_anew(tmp_path: Path, used: list[str]) -> None:
    first = start(tmp_path)
    for path in (tmp_path / "graphs").glob("*.blob"):
        path.unlink()

    assert start(tmp_path) == first
    assert used == []


def test_an_engine_that_refuses_the_entry_is_asked_again_in_the_usual_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: list[str]
) -> None:
    first, calls = start(tmp_path), []
    restore = OpenVinoEngine.restore

    def refuse_once(self: OpenVinoEngine, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            raise RuntimeError("not now")
        return restore(self, *given)

    monkeypatch.setattr(OpenVinoEngine, "restore", refuse_once)

    assert start(tmp_path) == first
    assert used == ["usual"]


def test_a_note_is_of_one_file_and_set_of_options(tmp_path: Path, used: list[str]) -> None:
    start(tmp_path)
    start(tmp_path, None, 1, "other.pt", 100, 7)

    assert used == ["usual"]
    assert len(notes(tmp_path)) == 2


def test_the_graph_with_the_most_weights_is_noted(tmp_path: Path) -> None:
    options = CompileOptions(threads=1)
    session = Session("cpu", options)
    ahead = Ahead(tmp_path, *FILE)
    for graph, key, size in (("a", "1", 10), ("b", "2", 20), ("c", "3", 15)):
        ahead.note(graph, key, session.engine_options, size)
    again = Ahead(tmp_path, *FILE)
    again.note("a", "1", session.engine_options, 10)

    (line,) = notes(tmp_path).values()
    assert line == ["b", "2", "fp32", 1, 20]


def test_so_many_notes_are_kept_and_the_oldest_forgotten(tmp_path: Path) -> None:
    options = Session("cpu", CompileOptions(threads=1)).engine_options
    for number in range(70):
        Ahead(tmp_path, number).note("mlp", str(number), options, 1)

    assert [line[1] for line in notes(tmp_path).values()] == [str(n) for n in range(6, 70)]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    options = Session("cpu", CompileOptions(threads=1)).engine_options

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ahead(blocked, *FILE).note("mlp", "1", options, 1)

    assert blocked.read_text() == "in the way"


def test_without_a_folder_nothing_is_noted_or_taken(tmp_path: Path) -> None:
    options, ahead = Session("cpu", CompileOptions(threads=1)).engine_options, Ahead()
    ahead.begin(find_engine("openvino"))
    ahead.note("mlp", "1", options, 1)

    assert ahead.take("mlp", "1", options) is None
    assert list(tmp_path.iterdir()) == []
