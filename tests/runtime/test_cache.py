"""Compiled graphs on disk: the same bits, and at worst a warning and a new compilation."""

import mmap
import os
import stat
import struct
import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from samgraph.checkpoint.download import cache_folder
from samgraph.engines.openvino.engine import OpenVinoEngine
from samgraph.errors import OptionError, SamgraphWarning
from samgraph.runtime import CompileOptions, GraphCache, Profile, Session, default_cache_dir
from samgraph.runtime import cache as cache_module
from samgraph.runtime.cache import cache_key
from samgraph.runtime.hashing import PIECE
from tests.runtime.graphs import mlp

X = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)


def run(
    folder: Path, weights: Mapping[str, NDArray[Any]] | None = None, **options: object
) -> bytes:
    """The bits of one run of the small network, compiled or from the cache in `folder`."""
    graph, own = mlp()
    weights = weights or own
    settings = CompileOptions(cache_dir=folder, threads=1, **options)  # type: ignore[arg-type]  # few
    return Session("cpu", settings).compile(graph, weights).run_numpy(x=X)["y"].tobytes()


def other_weights() -> dict[str, NDArray[Any]]:
    return {name: array + 1 for name, array in mlp()[1].items()}


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

    (text,) = (str(warning.message) for warning in seen)
    assert text == f"the cache file `{path}` is a folder; compiling anew"
    assert path.is_file()


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


def test_a_home_is_the_same_folder_for_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SAMGRAPH_CACHE", "~/x")

    assert default_cache_dir() == tmp_path / "x"
    assert cache_folder() == tmp_path / "x" / "checkpoints"
    assert default_cache_dir("~/y") == cache_folder("~/y") == tmp_path / "y"
    assert Session("cpu")._folder == tmp_path / "x"

    monkeypatch.setenv("SAMGRAPH_CACHE", "~nobody-of-that-name/x")
    with pytest.raises(OptionError, match="is in nobody's home"):
        default_cache_dir()


def store_two(folder: Path) -> tuple[Path, Path]:
    """The entries of two graphs that differ in their weights alone."""
    run(folder)
    run(folder, weights=other_weights())
    one, two = files(folder)
    return one, two


def test_an_entry_under_the_name_of_another_is_found_out(
    tmp_path: Path, compilations: list[str]
) -> None:
    first, second = run(tmp_path / "x"), run(tmp_path / "y", weights=other_weights())
    assert first != second
    one, two = store_two(tmp_path)
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    done = len(compilations)

    message = "is that of another graph; compiling anew"
    with pytest.warns(SamgraphWarning, match=message):
        assert run(tmp_path) == first
    with pytest.warns(SamgraphWarning, match=message):
        assert run(tmp_path, weights=other_weights()) == second

    assert run(tmp_path) == first  # without a warning, and without compiling
    assert len(compilations) == done + 2


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    os.truncate(path, 4 << 40)


def large_head(path: Path) -> None:
    """A head that promises four terabytes, which are there as a hole."""
    data = path.read_bytes()
    at = cache_module._HEAD.size - 40
    path.write_bytes(data[:at] + struct.pack("<Q", 4 << 40) + data[at + 8 :])
    os.truncate(path, cache_module._HEAD.size + (4 << 40))


def larger_than_its_graph(path: Path) -> None:
    """Less than a cache may hold, and far more than the graph can need."""
    data = path.read_bytes()
    at, length = cache_module._HEAD.size - 40, 7 << 30
    path.write_bytes(data[:at] + struct.pack("<Q", length) + data[at + 8 :])
    os.truncate(path, cache_module._HEAD.size + length)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def for_all(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("spoil", [pipe, endless, sparse, large_head, loop, for_all])
def test_a_bad_entry_costs_a_compilation_and_nothing_else(
    tmp_path: Path, spoil: Callable[[Path], None], compilations: list[str]
) -> None:
    first = run(tmp_path)
    (path,) = files(tmp_path)
    spoil(path)

    with pytest.warns(SamgraphWarning, match="compiling anew") as seen:
        assert run(tmp_path) == first

    assert len(seen) == 1
    assert run(tmp_path) == first
    assert len(compilations) == 2
    assert path.is_file()
    assert not path.is_symlink()


def test_no_more_is_read_than_the_graph_can_need(tmp_path: Path) -> None:
    first = run(tmp_path)
    (path,) = files(tmp_path)
    larger_than_its_graph(path)

    tracemalloc.start()
    with pytest.warns(SamgraphWarning, match="damaged; compiling anew"):
        assert run(tmp_path) == first
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 1 << 30


def test_what_would_not_be_read_is_not_kept(tmp_path: Path) -> None:
    GraphCache(tmp_path, 3).store("key", b"data")
    GraphCache(tmp_path, 4).store("other", b"data")

    assert [path.stem for path in files(tmp_path)] == ["other"]


def test_the_folder_is_for_this_user_alone(tmp_path: Path) -> None:
    run(tmp_path / "cache")

    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "cache" / "graphs").stat().st_mode) == 0o700


def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, compilations: list[str]
) -> None:
    first = run(tmp_path)
    (tmp_path / "graphs").chmod(0o777)

    with pytest.warns(SamgraphWarning, match=r"other users may write to it; .*chmod go-w"):
        assert run(tmp_path) == first

    assert len(compilations) == 2
    (tmp_path / "graphs").chmod(0o700)
    run(tmp_path)
    assert len(compilations) == 2


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path)
    owner = os.geteuid()
    monkeypatch.setattr(cache_module, "is_private", lambda status: status.st_uid == owner + 1)

    with pytest.warns(SamgraphWarning, match="other users may write to it"):
        assert run(tmp_path) == first

    assert len(compilations) == 2


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    run(tmp_path)
    old, new = (tmp_path / "graphs" / f"k.blob.{n}.1.tmp" for n in (1, 2))
    for path in (old, new):
        path.write_bytes(bytes(100))
    os.utime(old, (0, 0))

    GraphCache(tmp_path).store("key", b"data")

    assert not old.exists()
    assert new.exists()  # it may be in the making


@pytest.mark.skipif(os.name == "nt", reason="files are read there")
def test_an_entry_is_mapped_and_outlives_its_file(tmp_path: Path) -> None:
    first = run(tmp_path)
    (path,) = files(tmp_path)
    before = path.read_bytes()
    graph, weights = mlp()
    settings = CompileOptions(cache_dir=tmp_path, threads=1)
    restored = Session("cpu", settings).compile(graph, weights)
    content = GraphCache(tmp_path).load(path.stem)
    assert content is not None
    assert isinstance(content.obj, mmap.mmap)

    content[:4] = b"mine"  # what is written stays in this process

    assert path.read_bytes() == before
    path.unlink()
    assert restored.run_numpy(x=X)["y"].tobytes() == first


def test_a_file_that_becomes_shorter_while_it_is_opened_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path)

    def shorter(file: object, length: int) -> NoReturn:
        raise ValueError("mmap length is greater than file size")

    monkeypatch.setattr(cache_module, "_map", shorter)

    with pytest.warns(SamgraphWarning, match="is damaged; compiling anew"):
        assert run(tmp_path) == first


def test_a_change_behind_the_first_piece_of_an_entry_is_found(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path)
    cache.store("key", bytes(2 * PIECE + 1))
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    with pytest.warns(SamgraphWarning, match="is damaged"):
        assert cache.load("key") is None
