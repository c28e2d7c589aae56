"""Checkpoints from people who mean harm, and from disks that fail. Figures C1 to C4, C6."""

import ast
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import samgraph
from samgraph.checkpoint import as_float32, read
from samgraph.checkpoint.source_file import SourceFile
from samgraph.errors import CheckpointError
from tests.checkpoint import making
from tests.hostile.checkpoint_gadgets import gadgets
from tests.hostile.checkpoint_mutants import mutate
from tests.hostile.checkpoint_seeds import bad_files, good_files

SOURCE = Path(samgraph.__file__).parent
CHILD = Path(__file__).with_name("checkpoint_child.py")
MOST_SECONDS = 1.0
MOST_BYTES = 64 << 20
MUTANTS = 20_000

Report = list[dict[str, Any]]


def run_child(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    return subprocess.run(
        [sys.executable, str(CHILD), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )


def load_all(folder: Path, paths: Iterable[Path]) -> Report:
    """What a watched process makes of each path; a good file goes first, to warm it up."""
    first = folder / "first.pt"
    first.write_bytes(making.torch_file(making.GOOD))
    listing = folder / "listing"
    listing.write_text("\n".join(map(str, [first, *paths])), encoding="utf-8")
    done = run_child(str(listing))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_quick_and_small(report: Report) -> None:
    slowest = max(report, key=lambda line: line["seconds"])
    assert slowest["seconds"] <= MOST_SECONDS, slowest
    # The highest memory of all, so of each; and not even the size of a file is added.
    assert report[-1]["peak"] - report[0]["peak"] <= MOST_BYTES


def test_every_hostile_seed_is_a_clear_error(tmp_path: Path) -> None:
    seeds = bad_files()
    assert len(seeds) >= 60
    for name, seed in seeds.items():
        if isinstance(seed, bytes):
            (tmp_path / name).write_bytes(seed)
        else:
            seed(tmp_path / name)

    first, *report = load_all(tmp_path, [tmp_path / name for name in seeds])

    assert first["kind"] == "loaded"
    assert [Path(line["path"]).name for line in report] == list(seeds)
    for line in report:
        name = Path(line["path"]).name
        assert line["kind"] == "CheckpointError", line
        assert name in line["message"], line
        assert len(line["message"]) < 1000, line
    assert_quick_and_small([first, *report])


def test_good_files_load_in_the_same_process(tmp_path: Path) -> None:
    files = good_files()
    for name, raw in files.items():
        (tmp_path / name).write_bytes(raw)

    report = load_all(tmp_path, [tmp_path / name for name in files])

    assert {line["kind"] for line in report} == {"loaded"}


def test_the_watch_sees_what_it_must_see() -> None:
    done = run_child("--planted")

    statuses = json.loads(done.stdout)
    assert statuses.pop("nothing") == 0
    assert len(statuses) >= 8
    assert set(statuses.values()) == {86}


def gadget_programs(module: str, name: str, marker: Path) -> dict[str, bytes]:
    """Four pickles that would call a name, if names were looked up."""
    argument = f"touch {marker}"
    call = making.Call(making.Name(module, name), (argument,))
    text = making.Emitter()._text(argument)
    return {
        "lines": making.Emitter(2).program({"weight": call}),
        "stack": making.Emitter(4).program({"weight": call}),
        "old": b"(" + text + f"i{module}\n{name}\n".encode() + b".",
        "name alone": making.Emitter(2).program({"weight": making.Name(module, name)}),
    }


def test_every_gadget_is_refused_by_name_and_none_runs(tmp_path: Path) -> None:
    pairs = gadgets()
    assert len(pairs) >= 150
    folder = tmp_path / "files"
    folder.mkdir()
    marker = tmp_path / "executed"
    paths: dict[str, str] = {}
    for index, (module, name) in enumerate(pairs):
        for kind, program in gadget_programs(module, name, marker).items():
            path = folder / f"{index} {kind}.pt"
            path.write_bytes(making.zip_bytes(making.torch_records(program, {})))
            paths[str(path)] = f"asks for `{module}.{name}`"

    first, *report = load_all(tmp_path, map(Path, paths))

    assert len(report) == 4 * len(pairs)
    for line in report:
        assert line["kind"] == "CheckpointError", line
        assert paths[line["path"]] in line["message"], line
    assert_quick_and_small([first, *report])
    assert not marker.exists()


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: twenty thousand files are written in it."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def test_mutants_load_or_are_refused_and_nothing_else(quick_folder: Path) -> None:
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    path = quick_folder / "mutant.pt"
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for number in range(MUTANTS):
        raw = mutate(generator)
        path.write_bytes(raw)
        start = time.perf_counter()
        try:
            as_float32(read(path))
            outcomes["loaded"] += 1
        except CheckpointError:
            outcomes["refused"] += 1
        except BaseException as error:
            pytest.fail(f"seed {seed}, mutant {number}: {error!r}\n{raw.hex()}")
        slowest = max(slowest, time.perf_counter() - start)

    assert slowest <= MOST_SECONDS, f"seed {seed}"
    assert outcomes["loaded"] > MUTANTS // 100, (seed, outcomes)
    assert outcomes["refused"] > MUTANTS // 2, (seed, outcomes)


@pytest.mark.parametrize("make", [making.torch_file, making.safetensors_bytes])
@pytest.mark.parametrize("reads", range(1, 12))
def test_a_file_cut_short_while_it_is_read_is_an_error_not_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, reads: int
) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(make(making.GOOD))
    original, several = SourceFile._read_all, SourceFile._read_scattered
    done = 0

    def cut_then_read(file: SourceFile, target: memoryview, offset: int) -> None:
        nonlocal done
        done += 1
        if done == reads:
            os.truncate(path, offset + len(target) // 2)
        original(file, target, offset)

    def cut_then_read_several(file: SourceFile, arrays: Any, offset: int) -> int:
        nonlocal done
        done += 1
        if done == reads:
            os.truncate(path, offset + sum(map(len, arrays)) // 2)
        return several(file, arrays, offset)

    monkeypatch.setattr(SourceFile, "_read_all", cut_then_read)
    monkeypatch.setattr(SourceFile, "_read_scattered", cut_then_read_several)

    if make is making.safetensors_bytes and reads > 5:
        assert sorted(read(path).tensors) == ["bias", "weight"]
        assert done < reads
        return
    with pytest.raises(CheckpointError, match="became shorter while it was read"):
        read(path)


def test_a_file_that_grows_while_it_is_read_loads_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(making.safetensors_bytes(making.GOOD))
    original = SourceFile._read_all

    def grow_then_read(file: SourceFile, target: memoryview, offset: int) -> None:
        with path.open("ab") as stream:
            stream.write(bytes(1000))
        original(file, target, offset)

    monkeypatch.setattr(SourceFile, "_read_all", grow_then_read)

    assert read(path).tensors["bias"].tobytes() == making.GOOD["bias"].tobytes()


UNSAFE_MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"}
UNSAFE_MODULES |= {"marshal"}


def test_nothing_in_the_source_uses_pickle_and_the_readers_map_no_files() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "pickle.Unpickler" not in text, path
        assert "import pickle" not in text, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                modules = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules = {(node.module or "").partition(".")[0]}
            else:
                continue
            assert not modules & UNSAFE_MODULES, path
            assert path.parent.name != "checkpoint" or "mmap" not in modules, path
