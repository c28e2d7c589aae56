"""Compiled graphs on disk: the same bits, and at worst a warning and a new compilation."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from samgraph.engines.openvino.engine import OpenVinoEngine
from samgraph.errors import SamgraphWarning
from samgraph.runtime import CompileOptions, GraphCache, Profile, Session, default_cache_dir
from samgraph.runtime import cache as cache_module
from samgraph.runtime.cache import cache_key
from tests.runtime.graphs import mlp

X = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)


def run(folder: Path, **options: object) -> bytes:
    """The bits of one run of the small network, compiled or from the cache in `folder`."""
    graph, weights = mlp()
    settings = CompileOptions(cache_dir=folder, threads=1, **options)  # type: ignore[arg-type]  # few
    return Session("cpu", settings).compile(graph, weights).run_numpy(x=X)["y"].tobytes()


def files(folder: Path) -> list[Path]:
    return sorted((folder / "graphs").glob("*"))


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the graphs that were really compiled."""
    compiled: list[str] = []
    compile_ = OpenVinoEngine.compile

    def counted(self: OpenVinoEngine, graph: object, *rest: object) -> object:
        compiled.append(str(getattr(graph, "name", "")))
        return compile_(self, graph, *rest)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(OpenVinoEngine, "compile", counted)
    return compiled


def test_the_second_time_nothing_is_compiled_and_the_bits_are_the_same(
    tmp_path: Path, compilations: list[str]
) -> None:
    first, second = run(tmp_path), run(tmp_path)

    assert first == second == run(tmp_path, cache=False)
    assert len(files(tmp_path)) == 1
    assert compilations == ["mlp", "mlp"]  # once for the cache, once without it


def test_without_a_cache_nothing_is_written(tmp_path: Path) -> None:
    run(tmp_path, cache=False)

    assert not (tmp_path / "graphs").exists()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def only_the_head(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


@pytest.mark.parametrize("damage", [truncate, flip, garbage, empty, only_the_head])
def test_a_damaged_file_is_a_warning_and_a_new_compilation(
    tmp_path: Path, damage: Callable[[Path], None], compilations: list[str]
) -> None:
    first = run(tmp_path)
    (path,) = files(tmp_path)
    damage(path)

    with pytest.warns(SamgraphWarning, match=f"the cache file `{path}` is damaged; compiling anew"):
        second = run(tmp_path)

    assert second == first
    assert len(compilations) == 2
    assert run(tmp_path) == first  # the file is whole again
    assert len(compilations) == 2


def test_a_whole_file_that_the_engine_refuses_is_a_warning_and_a_new_compilation(
    tmp_path: Path, compilations: list[str]
) -> None:
    first = run(tmp_path)
    (path,) = files(tmp_path)
    GraphCache(tmp_path).store(path.stem, b"not a compiled graph")

    with pytest.warns(SamgraphWarning, match="a compiled graph of the cache cannot be used"):
        assert run(tmp_path) == first

    assert len(compilations) == 2


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """A file stands where the folder should be: root may write anywhere else."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")

    with pytest.warns(SamgraphWarning, match=f"compiled graphs cannot be kept in `{blocked}`"):
        first = run(blocked)

    assert first == run(tmp_path, cache=False)


def test_a_file_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    run(tmp_path)
    (path,) = files(tmp_path)
    path.unlink()
    path.mkdir()  # a folder in the place of the file

    with pytest.warns(SamgraphWarning) as seen:
        run(tmp_path)

    texts = [str(warning.message) for warning in seen]
    assert any("cannot be read (Is a directory); compiling anew" in text for text in texts)
    assert any("cannot be kept" in text for text in texts)


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)

    with pytest.warns(SamgraphWarning, match="No space left on device"):
        run(tmp_path)

    assert files(tmp_path) == []


def test_the_key_depends_on_everything_that_counts() -> None:
    graph, weights = mlp()
    other = {**weights, "layers.0.bias": weights["layers.0.bias"] + 1}

    keys = [
        cache_key(graph, weights, "openvino", "1", "fp32"),
        cache_key(graph, other, "openvino", "1", "fp32"),
        cache_key(graph, weights, "openvino", "2", "fp32"),
        cache_key(graph, weights, "openvino", "1", "bf16"),
        cache_key(graph, weights, "openvin", "o1", "fp32"),
    ]

    assert len(set(keys)) == len(keys)
    assert cache_key(graph, dict(reversed(weights.items())), "openvino", "1", "fp32") == keys[0]


def test_options_that_count_have_files_of_their_own(tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path, profile="plain")
    run(tmp_path, profile=Profile("mine", without=("drop_unused",)))
    run(tmp_path)

    assert len(files(tmp_path)) == 3


def test_another_version_of_openvino_compiles_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    run(tmp_path)
    monkeypatch.setattr(OpenVinoEngine, "version", lambda self: "2099")

    run(tmp_path)

    assert len(compilations) == 2


def test_threads_that_store_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path)
    contents = [bytes([n]) * 200_000 for n in range(8)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda data: cache.store("key", data), contents * 4))

    found = cache.load("key")
    assert found is not None
    assert bytes(found) in contents
    assert [path.name for path in files(tmp_path)] == ["key.blob"]


def test_the_files_used_longest_ago_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = GraphCache(tmp_path)
    monkeypatch.setattr(cache_module, "_KEEP_BYTES", 2_500)
    for number, key in enumerate(("a", "b")):
        cache.store(key, bytes(1_000))
        os.utime(tmp_path / "graphs" / f"{key}.blob", (number, number))
    assert cache.load("a") is not None  # used now, so "b" is the oldest

    cache.store("c", bytes(1_000))

    assert [path.stem for path in files(tmp_path)] == ["a", "c"]


def test_the_default_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMGRAPH_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path

    monkeypatch.delenv("SAMGRAPH_CACHE")
    assert default_cache_dir().name == "samgraph"
