"""Running peers in turn: each in its own process, one run at a time, medians of several rounds.

A peer is a script that calls `serve` with its jobs. The driver starts the peers and asks each
for one run of each job, round after round, so that a busy machine slows them all alike.
"""

import json
import os
import resource
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

Times = dict[str, list[float]]
PAUSE_SECONDS = 0.4  # the threads of the peer before may still be spinning
LIMIT_SECONDS = 1200  # for one answer


def serve(jobs: Mapping[str, Callable[[], object]]) -> None:
    """Answer the driver: a job's name on a line asks for one run, timed; `memory` for the peak."""
    for line in sys.stdin:
        name = line.strip()
        if name == "memory":
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps({"peak": peak}), flush=True)
            continue
        wall, cpu = time.perf_counter(), time.process_time()
        jobs[name]()
        print(
            json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}),
            flush=True,
        )


class Peer:
    """A process that runs jobs when asked."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_paths())}
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, word: str) -> dict[str, float]:
        """Send a word and read the answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the peer has no pipes")
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], LIMIT_SECONDS)[0]:
            self._process.kill()
            raise RuntimeError(f"peer {self.name} did not answer {word} in {LIMIT_SECONDS} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"peer {self.name} died on {word}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):  # one that died has no other end
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()


def compare(
    peers: Sequence[Peer], jobs: Sequence[str], rounds: int, kind: str = "wall"
) -> dict[str, dict[str, float]]:
    """Median seconds of every job on every peer, after one run that is not counted.

    A peer does all its jobs in their order, then comes the next: a job finds the processor as the
    one before it leaves it.
    """
    times: dict[str, Times] = {job: {peer.name: [] for peer in peers} for job in jobs}
    for turn in range(1 + rounds):
        for peer in peers:
            time.sleep(PAUSE_SECONDS)
            for job in jobs:
                seconds = peer.ask(job)[kind]
                if turn > 0:
                    times[job][peer.name].append(seconds)
    return {
        job: {name: statistics.median(values) for name, values in row.items()}
        for job, row in times.items()
    }


def _paths() -> list[str]:
    root = Path(__file__).resolve().parents[1]
    return [str(root / "src"), str(root), str(root / "benchmarks")]
