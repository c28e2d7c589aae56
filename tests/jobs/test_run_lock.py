"""The lock of a run folder: one holder at a time, whatever happens to its file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import samgraph
from samgraph.errors import OutputError
from samgraph.jobs import journal
from samgraph.jobs.journal import LOCK, RUN, RunFolder
from samgraph.jobs.run_lock import RunLock
from samgraph.media import files

SOURCE = Path(samgraph.__file__).parents[1]
PROCESSES, SECONDS = 6, 1.5

# Takes and gives the lock for a while. Whoever holds it makes a folder, which nobody else may find.
CONTENDER = """
import sys, os, time
from pathlib import Path
from samgraph.jobs.run_lock import RunLock
path, alone, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
taken = overlaps = 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    lock = RunLock(path)
    if not lock.acquire():
        continue
    taken += 1
    try:
        os.mkdir(alone)
        os.rmdir(alone)
    except OSError:
        overlaps += 1
    lock.release()
print(taken, overlaps)
"""


def test_processes_that_contend_never_hold_it_together(tmp_path: Path) -> None:
    paths = [str(tmp_path / LOCK), str(tmp_path / "alone")]
    arguments = [sys.executable, "-c", CONTENDER, *paths, str(SECONDS)]
    children = [
        subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        for _ in range(PROCESSES)
    ]

    counts = [tuple(map(int, child.communicate(timeout=60)[0].split())) for child in children]

    assert sum(taken for taken, _ in counts) > PROCESSES  # however slow the machine is
    assert sum(overlaps for _, overlaps in counts) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_once_and_leaves_nothing(tmp_path: Path) -> None:
    one, other = RunLock(tmp_path / LOCK), RunLock(tmp_path / LOCK)

    assert one.acquire()
    assert not other.acquire()
    one.release()
    one.release()
    assert not (tmp_path / LOCK).exists()
    assert other.acquire()
    other.release()


def test_what_a_dead_process_left_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("")

    lock = RunLock(tmp_path / LOCK)

    assert lock.acquire()
    lock.release()


def test_a_link_in_its_place_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic links"):
        RunLock(tmp_path / LOCK).acquire()

    assert not (tmp_path / "elsewhere").exists()


def test_what_a_run_is_is_read_once_the_lock_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process wrote its run just before it gave the folder back."""
    acquire = RunLock.acquire

    def after_another(lock: RunLock) -> bool:
        (tmp_path / RUN).write_text(json.dumps({"format": "davis"}))
        return acquire(lock)

    monkeypatch.setattr(RunLock, "acquire", after_another)

    with pytest.raises(OutputError, match="holds the results of a run"):
        RunFolder(tmp_path, {"format": "coco"}, resume=False)

    assert json.loads((tmp_path / RUN).read_text()) == {"format": "davis"}
    assert not (tmp_path / LOCK).exists()


def test_a_folder_that_is_refused_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("mine")

    with pytest.raises(OutputError, match="holds other files"):
        RunFolder(tmp_path, {}, resume=False)

    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "out", {"a": 1}, resume=False)

    with pytest.raises(OutputError, match="is being written by another process"):
        RunFolder(tmp_path / "out", {"a": 1}, resume=True)

    first.close()
    assert not (tmp_path / "out").exists()  # it did nothing


def test_an_empty_folder_that_vanishes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, times = files.make_folder, iter(range(3))

    def made_then_gone(folder: Path) -> None:
        make(folder)
        if next(times) < 2:
            folder.rmdir()

    monkeypatch.setattr(journal, "make_folder", made_then_gone)

    folder = RunFolder(tmp_path / "out", {}, resume=False)

    assert (tmp_path / "out" / RUN).is_file()
    folder.close()


def run_folder(tmp_path: Path, name: str, make: Any) -> None:
    for file in (RUN, name):
        (tmp_path / file).unlink(missing_ok=True)
    (tmp_path / RUN).write_text(json.dumps({"a": 1}))
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    RunFolder(tmp_path, {"a": 1}, resume=True).close()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "7",
        "null",
        "",
        '{"a": NaN}',
        '{"ending": 7}',
        '{"a": 1, "ending": {"written": 1}}',
        '{"a": 1, "ending": {"written": -1, "skipped": 0, "attempted": 0, "damage": null}}',
        '{"a": 1, "ending": {"written": 1, "skipped": 0, "attempted": 1, "damage": 5}}',
    ],
)
def test_a_run_that_says_nonsense_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(OutputError, match=r"run\.json` cannot be read"):
        run_folder(tmp_path, RUN, lambda path: path.write_text(text))


@pytest.mark.parametrize("name", [RUN, "frames.jsonl"])
def test_files_of_a_run_that_are_no_files_are_refused(tmp_path: Path, name: str) -> None:
    """A pipe would be waited for; a link would have another file cut short."""
    with pytest.raises(OutputError):
        run_folder(tmp_path, name, os.mkfifo)
    victim = tmp_path.parent / "victim"
    victim.write_text("dear diary\n")
    with pytest.raises(OutputError):
        run_folder(tmp_path, name, lambda path: path.symlink_to(victim))

    assert victim.read_text() == "dear diary\n"
    assert not (tmp_path / LOCK).exists()


GOOD = {
    "id": 1, "present": True, "prompted": False, "score": 0.5, "object_score": 1.0, "area": 0,
    "box": [0, 0, 0, 0], "segmentation": {"size": [4, 4], "counts": "`0"},
}  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "[" * 10_000,
        '{"frame": "1", "time": null, "objects": []}',
        '{"frame": 1e9, "time": null, "objects": []}',
        '{"frame": -1, "time": null, "objects": []}',
        '{"frame": 1, "time": NaN, "objects": []}',
        '{"frame": 1, "time": null, "objects": [{"id": 1}]}',
        '{"frame": 1, "time": null, "objects": [], "more": 1}',
        json.dumps({"frame": 1, "time": None, "objects": [{**GOOD, "area": "x"}]}),
        json.dumps({"frame": 1, "time": None, "objects": [{**GOOD, "segmentation": None}]}),
    ],
)
def test_a_line_that_says_nonsense_counts_as_cut_short(tmp_path: Path, line: str) -> None:
    good = json.dumps({"frame": 0, "time": None, "objects": [GOOD]})
    path = tmp_path / "frames.jsonl"
    path.write_text(f"{good}\n{line}\n{good}\n")

    found = journal.Journal(path)

    assert found.frames == {0}
    assert [record["frame"] for record in found.records()] == [0]
    found.close()
    assert path.read_text() == f"{good}\n"
