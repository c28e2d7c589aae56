"""The folder of a run: stopped anywhere, it goes on to the same files."""

import errno
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from samgraph.errors import OutputError
from samgraph.jobs.batch import folder as folders
from samgraph.jobs.batch.folder import FAILURES, JOURNAL, PLAN, BatchFolder, ShardOptions
from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.run import BatchOptions, BatchReport, run_batch
from samgraph.jobs.batch.scheduler import Failure, ScheduleOptions, Success, Verdict
from samgraph.jobs.batch.settings import WorkerSettings
from samgraph.jobs.batch.shards import Destination, find_shard_format
from tests.jobs.batch.driver import job_of
from tests.jobs.batch.test_local import file_names, inputs_at
from tests.jobs.batch.workers import ABOUT, InlineWorkers, ToyRunner


def opened(path: Path, *, per_shard: int = 4, retry_failed: bool = False) -> BatchFolder:
    shards = ShardOptions(find_shard_format("coco"), Destination(path), per_shard)
    folder = BatchFolder(path, {"kind": "batch"}, shards, retry_failed=retry_failed)
    folder.meet(ABOUT)
    return folder


def verdict(name: str, *, fails: bool = False) -> Verdict[Input]:
    found = Input(f"/x/{name}", name)
    if fails:
        return Verdict(found, Failure("unusable image", "bad"), 1)
    return Verdict(found, ToyRunner().outcome(found), 1)


def run(inputs: Path, out: Path, **options: Any) -> BatchReport:
    """A run in this process."""
    job = job_of(inputs, out)
    how = BatchOptions(ScheduleOptions(workers=1, batch=2), progress=False, **options)
    return run_batch(job, WorkerSettings(job.task, ""), how, lambda: InlineWorkers(ToyRunner))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_kill_before_a_worker_is_ready_leaves_a_folder_to_go_on_with(tmp_path: Path) -> None:
    """Nothing is recorded yet, so not even the task must be the same."""
    shards = ShardOptions(find_shard_format("coco"), Destination(tmp_path), 4)
    killed = BatchFolder(tmp_path, {"kind": "batch", "task": "embed"}, shards)
    (tmp_path / PLAN).write_bytes(b"")
    killed._lock.release()  # as the system does for a process that dies

    again = opened(tmp_path)
    again.record([verdict("a.png")])
    again.finish()
    again.close()

    assert json.loads((tmp_path / "run.json").read_text()) == {"kind": "batch", "model": ABOUT}


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    for name, text in (("notes.txt", ""), ("run.json", '{"kind": "other"}')):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text(text)

        with pytest.raises(OutputError, match="holds"):
            opened(folder)

        assert [path.name for path in folder.iterdir()] == [name]


@pytest.mark.parametrize("step", ["write shard", "note shard", "remove part"])
def test_a_stop_between_any_two_steps_of_a_shard_changes_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{letter}.png" for letter in "dacb"]
    whole = opened(tmp_path / "whole")
    whole.record([verdict(name) for name in names])
    whole.finish()
    whole.close()

    class KilledError(Exception):
        pass

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    parts = opened(tmp_path / "parts")
    with monkeypatch.context() as patch:
        if step == "write shard":
            patch.setattr(Destination, "write", killed)
        elif step == "note shard":
            patch.setattr(parts._journal, "append", killed)
        else:
            patch.setattr(Path, "unlink", killed)
        with pytest.raises(KilledError):
            parts.record([verdict(name) for name in names])
    parts._lock.release()  # as the system does for a process that dies
    again = opened(tmp_path / "parts")
    assert all(again.is_done(Input(f"/x/{name}", name)) for name in names)
    again.finish()
    again.close()

    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_line_that_was_cut_short_is_not_done(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.record([verdict("a.png"), verdict("b.png")])
    first.close()
    part = tmp_path / "part-00000.jsonl"
    part.write_bytes(part.read_bytes()[:-5])

    again = opened(tmp_path)
    done = [again.is_done(Input(f"/x/{name}.png", name)) for name in "ab"]
    again.close()

    assert done == [True, False]
    assert part.read_bytes().count(b"\n") == 1


def test_a_result_counts_only_when_the_disk_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "SYNC_SECONDS", 3600.0)
    folder = opened(tmp_path, per_shard=1000)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)

    folder.record([verdict(f"{number}.png") for number in range(folders.SYNC_LINES - 1)])
    before = folder.acknowledged
    folder.record([verdict("last.png")])

    assert (before, folder.acknowledged) == (0, folders.SYNC_LINES)
    assert len(synced) == 1
    folder.close()


def test_a_full_disk_stops_the_run_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = inputs_at(tmp_path / "in", *(f"a{number:02d}" for number in range(20)))
    out, write, lines = tmp_path / "out", os.write, list[bytes]()

    def full(file: int, data: bytes) -> int:
        if len(lines) == 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if data.startswith(b'{"key"'):
            lines.append(data)
        return write(file, data[:30] if len(lines) == 10 else data)  # a part of it still fits

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OutputError, match="no space left"):
            run(inputs, out)
    assert (out / "part-00001.jsonl").read_bytes().count(b"\n") == 9 - 7
    report = run(inputs, out)

    assert (report.skipped, report.done) == (9, 20)
    assert file_names(out) == Counter(f"a{number:02d}.png" for number in range(20))


def test_failures_are_kept_and_tried_again_when_asked(tmp_path: Path) -> None:
    inputs, out = inputs_at(tmp_path / "in", "a", "fail1", "fail2"), tmp_path / "out"
    assert run(inputs, out).failed == {"unusable image": 2}
    assert run(inputs, out).skipped == 3

    class Mended(ToyRunner):
        def outcome(self, found: Input) -> Success | Failure:
            name = found.name.replace("fail1", "good")
            return super().outcome(Input(found.path, name))

    job = job_of(inputs, out)
    again = BatchOptions(ScheduleOptions(workers=1), retry_failed=True, progress=False)
    report = run_batch(job, WorkerSettings(job.task, ""), again, lambda: InlineWorkers(Mended))

    assert (report.skipped, report.done, report.failed) == (1, 2, {"unusable image": 1})
    assert [json.loads(line)["path"] for line in (out / FAILURES).read_text().splitlines()] == [
        "fail2.png"
    ]
    assert file_names(out) == {"a.png": 1, "fail1.png": 1}


def test_a_retry_in_the_same_part_counts_once(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.record([verdict("a.png", fails=True), verdict("b.png")])
    first.close()

    again = opened(tmp_path, retry_failed=True)
    assert not again.is_done(Input("/x/a.png", "a.png"))
    again.record([verdict("a.png")])
    again.finish()
    again.close()

    assert (again.succeeded, again.failed) == (2, {})
    assert file_names(tmp_path) == {"a.png": 1, "b.png": 1}


def test_inputs_that_are_added_later_are_done_and_nothing_else(tmp_path: Path) -> None:
    inputs, out = inputs_at(tmp_path / "in", "a", "b"), tmp_path / "out"
    assert run(inputs, out).done == 2
    inputs_at(inputs, "c")

    report = run(inputs, out)

    assert (report.total, report.skipped, report.done) == (3, 2, 3)
    assert file_names(out) == {"a.png": 1, "b.png": 1, "c.png": 1}
    assert sorted(path.name for path in out.glob("masks-*")) == [
        "masks-00000.json", "masks-00001.json",
    ]  # fmt: skip


def test_other_prompts_for_an_input_that_is_done_are_refused(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    folder.record([verdict("a.png")])
    folder.close()
    again = opened(tmp_path)

    with pytest.raises(OutputError, match="for other prompts"):
        again.is_done(Input("/x/a.png", "a.png", ({"box": [1, 2, 3, 4]},)))
    again.close()


def test_another_model_or_task_is_refused(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    folder.record([verdict("a.png")])
    folder.close()
    again = opened(tmp_path)
    with pytest.raises(OutputError, match="another run: not the same model"):
        again.meet({**ABOUT, "weights": "f" * 16})
    again.close()
    shards = ShardOptions(find_shard_format("coco"), Destination(tmp_path))

    with pytest.raises(OutputError, match="not the same kind"):
        BatchFolder(tmp_path, {"kind": "other"}, shards)


def test_a_folder_with_other_files_is_refused_and_an_unused_one_leaves_nothing(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").touch()
    with pytest.raises(OutputError, match="holds other files"):
        opened(other)

    opened(tmp_path / "unused").close()

    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"\xff\n", b'{"shard":0}\n', b"[]\n"])
def test_a_damaged_journal_is_cut_off(damage: bytes, tmp_path: Path) -> None:
    folder = opened(tmp_path, per_shard=1)
    folder.record([verdict("a.png")])
    folder.close()
    journal = tmp_path / JOURNAL
    line = journal.read_bytes()
    journal.write_bytes(line + damage)

    again = opened(tmp_path, per_shard=1)
    again.record([verdict("b.png")])
    again.close()

    assert journal.read_bytes().startswith(line)
    assert file_names(tmp_path) == {"a.png": 1, "b.png": 1}
    shutil.rmtree(tmp_path)


def test_a_disk_that_is_full_for_a_worker_stops_the_run(tmp_path: Path) -> None:
    inputs, out = inputs_at(tmp_path / "in", "a", "stop"), tmp_path / "out"

    with pytest.raises(OutputError, match="the disk is full"):
        run(inputs, out)
    (inputs / "stop.png").rename(inputs / "b.png")
    assert run(inputs, out).done == 2
