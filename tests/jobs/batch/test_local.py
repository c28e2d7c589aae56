"""Real processes: workers and drivers are killed, and nothing is lost or written twice."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from samgraph.errors import CheckpointError
from samgraph.jobs.batch.folder import FAILURES
from samgraph.jobs.batch.local import LocalWorkers
from samgraph.jobs.batch.run import BatchOptions, run_batch
from samgraph.jobs.batch.scheduler import CRASH, TIMEOUT, ScheduleOptions
from samgraph.jobs.batch.settings import WorkerSettings
from tests.jobs.batch.driver import job_of, run
from tests.jobs.batch.workers import SECONDS, ToyRunner, refusing

KILLS = min(9, int(os.environ.get("SAMGRAPH_KILLS", "1")))
ROOT = Path(__file__).resolve().parents[3]


def inputs_at(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.png").touch()
    return folder


def file_names(out: Path) -> Counter[str]:
    """How often each image is in the shards; every id must be there once."""
    images, annotations = [], []
    for shard in sorted(out.glob("masks-*.json")):
        document = json.loads(shard.read_text())
        images += document["images"]
        annotations += document["annotations"]
    assert sorted(image["id"] for image in images) == list(range(1, len(images) + 1))
    assert sorted(mask["id"] for mask in annotations) == list(range(1, len(annotations) + 1))
    assert {mask["image_id"] for mask in annotations} == {image["id"] for image in images}
    return Counter(image["file_name"] for image in images)


def recorded(out: Path) -> int:
    """The inputs that whole lines say are done; a shard's part may go while it is counted."""
    try:
        parts = sum(path.read_bytes().count(b"\n") for path in out.glob("part-*.jsonl"))
    except FileNotFoundError:
        return recorded(out)
    journal = out / "journal.jsonl"
    data = journal.read_bytes() if journal.exists() else b""
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return parts + sum(len(json.loads(line)["keys"]) // 16 for line in lines)


def driver(inputs: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.batch.driver", str(inputs), str(out), *more],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def kill_when(child: subprocess.Popen[bytes], out: Path, count: int) -> None:
    """Kill a driver when so many inputs are recorded."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and child.poll() is None and recorded(out) < count:
        time.sleep(0.005)
    assert child.poll() is None, child.communicate()[1].decode()
    workers = children_of(child.pid)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    while any(map(is_alive, workers)):
        assert time.monotonic() < end, "workers outlive the process that started them"
        time.sleep(0.01)


def children_of(pid: int) -> list[Path]:
    """The processes that a process has started; none where the system does not say."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            if f"\nPPid:\t{pid}\n" in status.read_text(errors="replace"):
                found.append(status)
    return found


def is_alive(status: Path) -> bool:
    try:
        return "\nState:\tZ" not in status.read_text(errors="replace")
    except OSError:
        return False


def test_a_file_that_kills_its_worker_is_recorded_and_the_rest_is_done(tmp_path: Path) -> None:
    names = [f"a{number}" for number in range(20)]
    inputs = inputs_at(tmp_path / "in", *names, "kill", "fail")
    out = tmp_path / "out"

    report = run(inputs, out)

    assert (report.total, report.done) == (22, 20)
    assert report.failed == {CRASH: 1, "unusable image": 1}
    assert file_names(out) == Counter(f"{name}.png" for name in names)
    lines = map(json.loads, (out / FAILURES).read_text().splitlines())
    found = {line["path"]: (line["attempts"], line["message"]) for line in lines}
    assert found["kill.png"] == (2, "killed by signal 9")
    again = run(inputs, out)
    assert (again.skipped, again.done, again.failed) == (22, 20, report.failed)


def killed_and_finished(inputs: Path, out: Path, kills: int, *more: str) -> list[str]:
    """Runs that are killed, then one that is not; returns the inputs, but for `kill.png`.

    Every run can only go on to a gate, which opens when it is killed there.
    """
    gates = range(1, kills + 1)
    names = [f"a{number:02d}" for number in range(20)]
    names += [f"gate{gate}-{number:02d}" for gate in gates for number in range(20)]
    inputs_at(inputs, *names, "kill")
    for gate in gates:
        count = 3 + 22 * (gate - 1)
        kill_when(driver(inputs, out, *more), out, count)
        assert count <= recorded(out) < len(names)
        (inputs / f"go{gate}").touch()
    child = driver(inputs, out, *more)
    printed, error = child.communicate(timeout=SECONDS)
    assert child.returncode == 0, error.decode()
    assert printed.split()[-2:] == [str(len(names)).encode(), b"1"]
    return [f"{name}.png" for name in names]


def test_a_killed_driver_loses_nothing_and_writes_nothing_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"

    names = killed_and_finished(tmp_path / "in", out, KILLS)

    assert file_names(out) == Counter(names)
    assert not list(out.glob("part-*"))


def test_a_model_that_cannot_be_loaded_ends_the_run_at_once(tmp_path: Path) -> None:
    inputs, out = inputs_at(tmp_path / "in", "a"), tmp_path / "out"
    job = job_of(inputs, out)
    settings = WorkerSettings(job.task, "", make=refusing)

    with pytest.raises(CheckpointError, match="samgraph models"):
        run_batch(job, settings, BatchOptions(ScheduleOptions(workers=1), progress=False))
    assert not out.exists()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_a_worker_is_deaf_to_ctrl_c_from_its_first_instruction_on(tmp_path: Path) -> None:
    """It would print a traceback while it imports; the process that started it decides."""

    def blocked(pid: int) -> bool:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        (mask,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))
        return bool(mask >> (signal.SIGINT - 1) & 1)

    job = job_of(tmp_path, tmp_path)
    workers = LocalWorkers(WorkerSettings(job.task, "", make=ToyRunner))
    try:
        workers.start(0)
        assert blocked(workers.pids[0])
        assert not blocked(os.getpid())
    finally:
        workers.close()


def test_a_system_without_room_for_a_process_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inputs, out = inputs_at(tmp_path / "in", "a"), tmp_path / "out"
    start, refusals = SpawnProcess.start, list[str]()

    def refusing_once(process: SpawnProcess) -> None:
        if not refusals:
            refusals.append("no")
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", refusing_once)

    assert run(inputs, out).done == 1
    assert refusals


def test_a_file_that_hangs_is_given_up(tmp_path: Path) -> None:
    inputs, out = inputs_at(tmp_path / "in", "gate9-never"), tmp_path / "out"
    job = job_of(inputs, out)
    how = ScheduleOptions(workers=1, seconds_per_input=0.2)

    settings = WorkerSettings(job.task, "", make=ToyRunner)
    report = run_batch(job, settings, BatchOptions(how, progress=False))

    assert (report.done, report.failed) == (0, {TIMEOUT: 1})
