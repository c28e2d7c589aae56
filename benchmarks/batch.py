"""Batch runs: speed on this machine's cores, the driver's cost and memory, a simulated cluster.

    python benchmarks/batch.py speed --images 120 --rounds 3
    python benchmarks/batch.py driver --inputs 100000
    python benchmarks/batch.py cluster --workers 200 --inputs 200000

`speed` is small JPEG images with one box each, the built-in model, in turns: a batch run with a
worker per core, one with a single worker and thread, and a plain loop (read, encode, predict, run
lengths) with all threads and with one. Counted is the time from the first worker that is ready to
the last result on the disk: loading a model takes as long for one image as for a million. Beside
the wall clock stands processor time per image, which other programs on the machine hardly change.

`driver` is everything but the work: 100,000 inputs of a manifest through plan, scheduler, journal
and COCO shards, with workers that answer at once. `cluster` is the same scheduler in virtual time.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from samgraph.formats.segment import Segment
from samgraph.jobs.batch.driving import Event, drive
from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.local import LocalWorkers
from samgraph.jobs.batch.run import BatchJob, BatchOptions, run_batch
from samgraph.jobs.batch.scheduler import ScheduleOptions, Scheduler, Success
from samgraph.jobs.batch.settings import WorkerSettings, cores
from samgraph.jobs.batch.simulation import Cluster, SimulatedWorkers
from samgraph.jobs.batch.tasks import TaskOptions, described
from samgraph.predict.model import load
from samgraph.runtime import CompileOptions
from samgraph.untrusted.text import json_bytes

MODEL = "samgraph-nano"
SIZE_HW = (240, 320)
BOX = [80.0, 60.0, 240.0, 180.0]


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that is removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="samgraph-batch-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def processor_seconds() -> float:
    """Of this process and of children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def worker_seconds(pids: list[int]) -> float:
    """Processor time of live processes."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def resident_megabytes() -> float:
    """The memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


class TimedWorkers(LocalWorkers):
    """Notes when the last of its workers is ready, so that loading is not counted."""

    def __init__(self, settings: WorkerSettings, count: int) -> None:
        super().__init__(settings)
        self.ready_at: list[float] = []
        self.used = 0.0  # processor time of the workers' work
        self._count = count
        self._held: list[tuple[int, int, tuple[Input, ...]]] = []

    def send(self, worker: int, group: int, inputs: tuple[Input, ...]) -> None:
        """Nothing is sent before all workers are ready."""
        if len(self.ready_at) < self._count:
            self._held.append((worker, group, inputs))
        else:
            super().send(worker, group, inputs)

    def events(self, until: float | None) -> list[Event]:
        """As they come."""
        found = super().events(until)
        before = len(self.ready_at)
        self.ready_at += [self.now() for event in found if type(event).__name__ == "Ready"]
        if before < self._count <= len(self.ready_at):
            self.used = -worker_seconds(self.pids)
            for held in self._held:
                super().send(*held)
        return found

    def close(self) -> None:
        """Kill the workers, once their time is known."""
        self.used += worker_seconds(self.pids)
        super().close()


def draw(where: Path, count: int) -> Path:
    """Small JPEG images of coloured boxes, and a manifest with a prompt for each."""
    chance, lines = np.random.default_rng(0), []
    for number in range(count):
        picture = np.full((*SIZE_HW, 3), chance.integers(0, 255, 3), np.uint8)
        picture[60:180, 80:240] = chance.integers(0, 255, 3)
        Image.fromarray(picture).save(where / f"{number:05d}.jpg", quality=90)
        lines.append(json.dumps({"path": f"{number:05d}.jpg", "box": BOX}))
    manifest = where / "list.jsonl"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


def batch_run(manifest: Path, workers: int, batch: int, device: str = "cpu") -> dict[str, float]:
    """Seconds per image of a batch run, a thread per worker."""
    with folder() as out:
        job = BatchJob((str(manifest),), out / "run", TaskOptions("segment", str(out)))
        settings = WorkerSettings(job.task, MODEL, (device,), compile=CompileOptions(threads=1))
        options = BatchOptions(ScheduleOptions(workers, batch), progress=False)
        made: list[TimedWorkers] = []

        def make() -> TimedWorkers:
            made.append(TimedWorkers(settings, workers))
            return made[0]

        report = run_batch(job, settings, options, make)
        seconds, used = time.monotonic() - max(made[0].ready_at), made[0].used
    return {"wall": seconds / report.total, "processor": used / report.total}


def plain_loop(manifest: Path, threads: int | None, device: str = "cpu") -> dict[str, float]:
    """Seconds per image of what a short script does."""
    options = CompileOptions() if threads is None else CompileOptions(threads=threads)
    model = load(MODEL, device=device, options=options)
    paths = sorted(manifest.parent.glob("*.jpg"))
    results = []
    model.image(paths[0]).predict(box=BOX, multimask=False)
    start, before = time.monotonic(), processor_seconds()
    for path in paths:
        result = model.image(path).predict(box=BOX, multimask=False)
        results.append([described(segment) for segment in result.segments])
    seconds, used = time.monotonic() - start, processor_seconds() - before
    return {"wall": seconds / len(paths), "processor": used / len(paths)}


def on_cpu(batch: int) -> dict[str, Any]:
    """What is timed on the cores of this machine."""
    return {
        f"batch, {cores()} workers": lambda path: batch_run(path, cores(), batch),
        "batch, 1 worker": lambda path: batch_run(path, 1, batch),
        "plain loop, all threads": lambda path: plain_loop(path, None),
        "plain loop, 1 thread": lambda path: plain_loop(path, 1),
    }


def on_cuda() -> dict[str, Any]:
    """What is timed on a GPU."""
    runs = {
        f"batch, {workers} workers, groups of {batch}": (workers, batch)
        for workers, batch in ((1, 4), (1, 1), (2, 4), (3, 4), (4, 4), (1, 8))
    }
    found: dict[str, Any] = {
        name: lambda path, how=how: batch_run(path, *how, "cuda") for name, how in runs.items()
    }
    return {**found, "plain loop": lambda path: plain_loop(path, None, "cuda")}


def speed(images: int, rounds: int, peers: dict[str, Any]) -> None:
    """Batch runs against one worker and plain loops, in turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in peers}
    with folder() as where:
        manifest = draw(where, images)
        for turn in range(rounds):
            for name, run in peers.items():
                found[name].append(run(manifest))
                print(f"round {turn}: {name}: {found[name][-1]}", flush=True)
    first = next(iter(peers))
    for name, times in found.items():
        wall = statistics.median(one["wall"] for one in times)
        processor = statistics.median(one["processor"] for one in times)
        pairs = zip(times, found[first], strict=True)
        ratio = statistics.median(other["wall"] / ours["wall"] for other, ours in pairs)
        print(
            f"{name}: {1e3 * wall:.1f} ms per image ({1 / wall:.1f} per second), processor "
            f"{1e3 * processor:.1f} ms; {first} is {ratio:.2f} times as fast"
        )


def driver(inputs: int) -> None:
    """What the driver costs per input, and how its memory grows."""
    mask = np.zeros(SIZE_HW, np.bool_)
    mask[60:180, 80:240] = True
    segments = [Segment.from_mask(mask, label="box", score=0.9) for _ in range(3)]
    body = json_bytes(
        {"height": 240, "width": 320, "annotations": [described(one) for one in segments]},
        compact=True,
    )
    cluster = Cluster(seconds_to_start=0.0, latency=0.0, body=lambda work: body)
    memory: dict[int, float] = {}

    def note(done: int, total: int) -> None:
        for share in (0.1, 0.5, 1.0):
            if done >= share * total:
                memory.setdefault(int(share * total), resident_megabytes())

    with folder() as where:
        manifest = where / "list.jsonl"
        with manifest.open("w") as file:
            for number in range(inputs):
                file.write(json.dumps({"path": f"folder/{number:08d}.jpg", "box": BOX}) + "\n")
        job = BatchJob((str(manifest),), where / "out", TaskOptions("segment", str(where)))
        options = BatchOptions(ScheduleOptions(8, 2), progress=note)
        start, before = time.monotonic(), processor_seconds()
        settings = WorkerSettings(job.task, MODEL)
        report = run_batch(job, settings, options, lambda: SimulatedWorkers(cluster))
        seconds, used = time.monotonic() - start, processor_seconds() - before
        again = time.monotonic()
        run_batch(job, settings, options, lambda: SimulatedWorkers(cluster))
        resumed = time.monotonic() - again
    print(f"{report.done:,} inputs in {seconds:.1f} s: {1e3 * seconds / inputs:.3f} ms per input")
    print(f"processor {1e3 * used / inputs:.3f} ms; skipping all: {1e3 * resumed / inputs:.3f} ms")
    for done, megabytes in memory.items():
        print(f"after {done:,} inputs: {megabytes:.0f} MB")


def cluster(workers: int, inputs: int, seed: int) -> None:
    """How busy a cluster is whose workers fail now and then."""
    kills = {inputs // 3, 2 * inputs // 3}
    machines = Cluster(
        seconds_to_start=20.0, seconds_to_failure=3600.0, kills=lambda work: work in kills
    )
    simulated = SimulatedWorkers(machines, seed)
    scheduler = Scheduler(iter(range(inputs)), ScheduleOptions(workers, batch=4))
    verdicts: dict[int, bool] = {}
    start = time.monotonic()
    drive(
        scheduler,
        simulated,
        lambda some: verdicts.update({one.input: isinstance(one.outcome, Success) for one in some}),
    )
    seconds = time.monotonic() - start
    print(
        f"{len(verdicts):,} inputs on {workers} workers, {simulated.deaths} of which failed: "
        f"{100 * simulated.utilisation(workers):.1f} % busy with useful work, "
        f"{sum(not good for good in verdicts.values())} given up, in {simulated.now():,.0f} s of "
        f"virtual time; the scheduler took {1e6 * seconds / inputs:.0f} us per input"
    )


def main() -> None:
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("speed", "driver", "cluster"))
    parser.add_argument("--images", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--inputs", type=int, default=None)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.what == "speed":
        peers = on_cuda() if given.device == "cuda" else on_cpu(given.batch)
        speed(given.images, given.rounds, peers)
    elif given.what == "driver":
        driver(given.inputs or 100_000)
    else:
        cluster(given.workers, given.inputs or 200_000, given.seed)


if __name__ == "__main__":
    main()
