"""Workers in virtual time: the scheduler of real runs on any number of machines that do not exist.

workers = SimulatedWorkers(Cluster(seconds_to_failure=3600), seed=1)
drive(Scheduler(iter(range(100_000)), ScheduleOptions(workers=200)), workers, record)
workers.utilisation(200)                    # the share of all workers' time in useful work
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from samgraph.jobs.batch.driving import Begun, Died, Event, Finished, Ready
from samgraph.jobs.batch.scheduler import Outcome, Success


@dataclass(frozen=True, slots=True)
class Cluster:
    """How simulated workers behave; times are means in seconds.

    Args:
        seconds_to_start: From the start of a worker until it is ready.
        seconds_per_input: Of work on an input; from half to one and a half times as long.
        seconds_to_failure: From being ready until a worker dies by itself.
        latency: Of a message, either way.
        kills: Whether an input kills whoever works on it.
        body: The result of an input.
    """

    seconds_to_start: float = 10.0
    seconds_per_input: float = 1.0
    seconds_to_failure: float = inf
    latency: float = 0.01
    kills: Callable[[Any], bool] = lambda work: False
    body: Callable[[Any], bytes] = lambda work: b"{}"


@dataclass(slots=True)
class _Worker:
    """A worker computes one group after another."""

    free_at: float


class SimulatedWorkers:
    """Workers whose clock jumps to the next thing that happens."""

    def __init__(self, cluster: Cluster, seed: int = 0) -> None:
        self._cluster, self._random = cluster, random.Random(seed)  # noqa: S311 (a simulation)
        self._now, self._order = 0.0, 0
        self._agenda: list[tuple[float, int, Event, float]] = []
        self._workers: dict[int, _Worker] = {}
        self.useful = 0.0  # seconds of work on inputs that were finished
        self.deaths = 0

    def utilisation(self, workers: int) -> float:
        """The share of the time of so many workers that was useful work."""
        return self.useful / (workers * self._now) if self._now else 0.0

    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self._now

    def start(self, worker: int) -> None:
        """A worker that is ready after a while, and fails at some time after that."""
        cluster = self._cluster
        ready = self._now + cluster.seconds_to_start * self._random.uniform(0.5, 1.5)
        self._workers[worker] = _Worker(free_at=ready)
        self._plan(ready, Ready(worker, {}))
        if cluster.seconds_to_failure < inf:
            fails = ready + self._random.expovariate(1 / cluster.seconds_to_failure)
            self._plan(fails, Died(worker, "the machine failed"))

    def send(self, worker: int, group: int, inputs: tuple[Any, ...]) -> None:
        """Work on a group when the worker is done with those before."""
        own, cluster = self._workers[worker], self._cluster
        begin = max(own.free_at, self._now + cluster.latency)
        seconds = sum(
            cluster.seconds_per_input * self._random.uniform(0.5, 1.5) for _ in range(len(inputs))
        )
        own.free_at = begin + seconds
        self._plan(begin, Begun(worker, group))
        if any(map(cluster.kills, inputs)):
            self._plan(begin + seconds / 2, Died(worker, "killed by signal 9"))
            return
        outcomes: list[Outcome] = [Success(cluster.body(work)) for work in inputs]
        done = Finished(worker, group, outcomes)
        self._plan(own.free_at + cluster.latency, done, useful=seconds)

    def stop(self, worker: int) -> None:
        """The worker is gone at once."""
        self._workers.pop(worker, None)

    def events(self, until: float | None) -> list[Event]:
        """The next thing that happens."""
        while self._agenda and (until is None or self._agenda[0][0] <= until):
            self._now, _, event, useful = heapq.heappop(self._agenda)
            worker = getattr(event, "worker", None)
            if worker not in self._workers:
                continue  # it died before
            self.useful += useful
            if isinstance(event, Died):
                self.deaths += 1
                del self._workers[event.worker]
            return [event]
        self._now = self._now if until is None else max(self._now, until)
        return []

    def close(self) -> None:
        """Forget all workers."""
        self._workers.clear()

    def _plan(self, at: float, event: Event, useful: float = 0.0) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (at, self._order, event, useful))
