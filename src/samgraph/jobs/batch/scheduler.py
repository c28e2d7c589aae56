"""Which worker does what: a state machine without threads, processes or a clock of its own.

    scheduler = Scheduler(inputs, ScheduleOptions(workers=2))
    for action in scheduler.actions(now): ...         # Start, Send or Stop a worker
    scheduler.ready(worker, now); scheduler.finished(worker, group, outcomes, now)
    scheduler.died(worker, "killed by signal 9", now)
    scheduler.take_verdicts()                         # inputs that are done or given up

Local processes, Ray and the simulation drive the same code; `now` is in seconds of any clock.

Inputs are sent in groups, a few groups ahead of a worker's computation, and taken from their
iterator only when a worker has room. When a worker dies, the inputs it had begun are suspects: each
is run again alone, and given up when it has killed `crash_limit` workers. An input that fails for a
reason that may pass is run again up to `retries` times, later each time.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

Work = TypeVar("Work")

LONGEST_DELAY = 60.0
CRASH, TIMEOUT = "killed its worker", "took too long"


@dataclass(frozen=True, slots=True)
class Success:
    """An input is done; `body` is its result as JSON."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """An input cannot be used: a reason that groups failures, and a message about this one."""

    reason: str
    message: str
    may_pass: bool = False  # whether another attempt may succeed


Outcome: TypeAlias = Success | Failure


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """How inputs are divided among workers.

    Args:
        workers: The number of workers to keep alive.
        batch: The most inputs per group.
        ahead: The most groups per worker at a time: one that is decoded, one that is computed, one
            that is written.
        retries: Further attempts at an input whose failure may pass.
        retry_delay: Seconds before the first of them; twice as long before each further one.
        crash_limit: Workers that an input may kill before it is given up.
        seconds_per_input: The most time for an input; None for no limit.
    """

    workers: int = 1
    batch: int = 1
    ahead: int = 3
    retries: int = 2
    retry_delay: float = 1.0
    crash_limit: int = 2
    seconds_per_input: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker."""

    worker: int


@dataclass(frozen=True, slots=True)
class Send(Generic[Work]):
    """Send a group of inputs to a worker."""

    worker: int
    group: int
    inputs: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Kill a worker; its death need not be reported."""

    worker: int


@dataclass(frozen=True, slots=True)
class Verdict(Generic[Work]):
    """How an input ended, and after how many attempts."""

    input: Work
    outcome: Outcome
    attempts: int


@dataclass(slots=True, eq=False)
class _Task(Generic[Work]):
    input: Work
    attempts: int = 0
    failures: int = 0
    crashes: int = 0


@dataclass(slots=True)
class _Group(Generic[Work]):
    tasks: list[_Task[Work]]
    begun: float | None = None


@dataclass(slots=True)
class _Worker(Generic[Work]):
    is_ready: bool = False
    groups: dict[int, _Group[Work]] = field(default_factory=dict)


class Scheduler(Generic[Work]):
    """Divides inputs among workers; see the module."""

    def __init__(self, inputs: Iterator[Work], options: ScheduleOptions) -> None:
        self._inputs, self._options = inputs, options
        self._is_exhausted = False
        self._waiting: deque[_Task[Work]] = deque()  # sent before, with nothing against them
        self._suspects: deque[_Task[Work]] = deque()
        self._delayed: list[tuple[float, int, _Task[Work]]] = []
        self._workers: dict[int, _Worker[Work]] = {}
        self._hungry: dict[int, None] = {}  # ready workers with room, in order
        self._verdicts: list[Verdict[Work]] = []
        self._next_worker = self._next_group = self._next_order = 0
        self._failed_starts, self._start_at = 0, 0.0
        self.last_death = ""

    @property
    def is_done(self) -> bool:
        """Whether every input has a verdict."""
        return not self._has_work() and not any(w.groups for w in self._workers.values())

    @property
    def is_broken(self) -> bool:
        """Whether no worker starts: as many as there are, and three more, died in a row."""
        return self._failed_starts >= self._options.workers + 3

    @property
    def live_workers(self) -> int:
        """The workers that are started or starting."""
        return len(self._workers)

    def take_verdicts(self) -> list[Verdict[Work]]:
        """The inputs that ended since the last call."""
        taken, self._verdicts = self._verdicts, []
        return taken

    def actions(self, now: float) -> list[Start | Send[Work] | Stop]:
        """What is to be done now."""
        while self._delayed and self._delayed[0][0] <= now:
            self._suspects.append(heapq.heappop(self._delayed)[2])
        found: list[Start | Send[Work] | Stop] = [*self._overdue(now)]
        if now >= self._start_at and not self.is_broken:
            while len(self._workers) < self._options.workers and self._has_work():
                found.append(Start(self._add_worker()))
        found += self._sends()
        return found

    def next_time(self, now: float) -> float | None:
        """When `actions` has something to do even if nothing is reported; None: never."""
        times = [self._delayed[0][0]] if self._delayed else []
        if len(self._workers) < self._options.workers and self._start_at > now:
            times.append(self._start_at)
        times += [end for _, _, end in self._deadlines()]
        return min(times, default=None)

    def ready(self, worker: int, now: float) -> None:
        """A worker can take inputs."""
        if worker in self._workers:
            self._workers[worker].is_ready = True
            self._failed_starts = 0
            self._hungry[worker] = None

    def begun(self, worker: int, group: int, now: float) -> None:
        """A worker has begun a group."""
        if worker in self._workers and group in self._workers[worker].groups:
            self._workers[worker].groups[group].begun = now

    def finished(self, worker: int, group: int, outcomes: list[Outcome], now: float) -> None:
        """A worker reports an outcome for each input of a group."""
        if worker not in self._workers or group not in self._workers[worker].groups:
            return  # of a worker that was given up in the meantime
        own = self._workers[worker]
        tasks = own.groups.pop(group).tasks
        self._hungry[worker] = None
        for task, outcome in zip(tasks, outcomes, strict=True):
            task.attempts += 1
            if isinstance(outcome, Success) or not outcome.may_pass:
                self._verdicts.append(Verdict(task.input, outcome, task.attempts))
                continue
            task.failures += 1
            if task.failures > self._options.retries:
                self._verdicts.append(Verdict(task.input, outcome, task.attempts))
            else:
                self._delay(task, now + self._options.retry_delay * 2 ** (task.failures - 1))

    def died(self, worker: int, reason: str, now: float) -> None:
        """A worker is gone; the inputs it had begun are suspects, the others wait again."""
        own = self._workers.get(worker)
        if own is None:
            return
        begun = [group for group in own.groups.values() if group.begun is not None]
        self._lose(worker, begun, Failure(CRASH, reason))
        if not own.is_ready:
            self._failed_starts += 1
            delay = min(LONGEST_DELAY, 0.5 * 2 ** (self._failed_starts - 1))
            self._start_at = now + delay
        self.last_death = reason

    def _has_work(self) -> bool:
        """Whether an input waits to be sent."""
        if self._waiting or self._suspects or self._delayed:
            return True
        task = self._pull()
        if task is not None:
            self._waiting.append(task)
        return task is not None

    def _pull(self) -> _Task[Work] | None:
        """A new input; None when there is none."""
        if self._is_exhausted:
            return None
        try:
            return _Task(next(self._inputs))
        except StopIteration:
            self._is_exhausted = True
            return None

    def _add_worker(self) -> int:
        number = self._next_worker
        self._next_worker += 1
        self._workers[number] = _Worker()
        return number

    def _sends(self) -> list[Send[Work]]:
        """Groups for workers that have room, those with the least first.

        While there are suspects, up to half of the workers get nothing else, until they are idle
        and take a suspect alone.
        """
        found: list[Send[Work]] = []
        if not self._hungry or not (self._suspects or self._has_work()):
            return found
        reserved = min(len(self._suspects), max(1, len(self._workers) // 2))
        levels = sorted(self._hungry, key=lambda number: len(self._workers[number].groups))
        while levels:
            again = []
            for number in levels:
                own = self._workers[number]
                if reserved and self._suspects:
                    reserved -= 1
                    if not own.groups:
                        found.append(self._send(number, [self._suspects.popleft()]))
                        del self._hungry[number]
                    continue
                tasks = self._next_tasks()
                if not tasks:
                    return found
                found.append(self._send(number, tasks))
                if len(own.groups) < self._options.ahead:
                    again.append(number)
                else:
                    del self._hungry[number]
            levels = again
        return found

    def _next_tasks(self) -> list[_Task[Work]]:
        tasks: list[_Task[Work]] = []
        while len(tasks) < self._options.batch:
            task = self._waiting.popleft() if self._waiting else self._pull()
            if task is None:
                break
            tasks.append(task)
        return tasks

    def _send(self, worker: int, tasks: list[_Task[Work]]) -> Send[Work]:
        number = self._next_group
        self._next_group += 1
        self._workers[worker].groups[number] = _Group(tasks)
        return Send(worker, number, tuple(task.input for task in tasks))

    def _delay(self, task: _Task[Work], until: float) -> None:
        self._next_order += 1
        heapq.heappush(self._delayed, (until, self._next_order, task))

    def _lose(self, worker: int, blamed: list[_Group[Work]], failure: Failure) -> None:
        """Forget a worker; of its inputs, those of the groups in `blamed` are suspects."""
        own = self._workers.pop(worker)
        self._hungry.pop(worker, None)
        blamed_ids = {id(group) for group in blamed}
        for group in reversed(own.groups.values()):
            if id(group) not in blamed_ids:
                self._waiting.extendleft(reversed(group.tasks))
                continue
            for task in group.tasks:
                task.attempts += 1
                task.crashes += 1
                if task.crashes >= self._options.crash_limit:
                    self._verdicts.append(Verdict(task.input, failure, task.attempts))
                else:
                    self._suspects.append(task)

    def _deadlines(self) -> Iterator[tuple[int, _Group[Work], float]]:
        """Worker, group and end of the time of every group that has begun."""
        limit = self._options.seconds_per_input
        if limit is None:
            return
        for number, worker in self._workers.items():
            begun = [group for group in worker.groups.values() if group.begun is not None]
            inputs = sum(len(group.tasks) for group in begun)  # they share the worker's time
            for group in begun:
                yield number, group, (group.begun or 0.0) + limit * inputs

    def _overdue(self, now: float) -> list[Stop]:
        """Give up workers whose oldest group takes too long."""
        late: dict[int, _Group[Work]] = {}
        for number, group, end in self._deadlines():
            if end <= now:
                late.setdefault(number, group)
        limit = self._options.seconds_per_input
        for number, group in late.items():
            self._lose(number, [group], Failure(TIMEOUT, f"more than {limit:g} s"))
        return [Stop(number) for number in late]
