"""The loop between a scheduler and its workers, whatever they are: processes, Ray, a simulation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from samgraph.errors import EngineError, SamgraphError
from samgraph.jobs.batch.scheduler import Outcome, Scheduler, Send, Start, Verdict

Work = TypeVar("Work")
WorkIn = TypeVar("WorkIn", contravariant=True)


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has loaded its model, which `about` describes."""

    worker: int
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker has begun a group."""

    worker: int
    group: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A worker reports an outcome for each input of a group."""

    worker: int
    group: int
    outcomes: list[Outcome]


@dataclass(frozen=True, slots=True)
class Died:
    """A worker is gone."""

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No worker can do this: a model that cannot be loaded, a disk that is full."""

    error: SamgraphError


Event: TypeAlias = Ready | Begun | Finished | Died | Refused


class Workers(Protocol[WorkIn]):
    """Where inputs are worked on."""

    def now(self) -> float:
        """Seconds of the workers' clock."""

    def start(self, worker: int) -> None:
        """Begin to start a worker; `Ready` or `Died` follows."""

    def send(self, worker: int, group: int, inputs: tuple[WorkIn, ...]) -> None:
        """Send a group; `Finished` follows, or the worker dies."""

    def stop(self, worker: int) -> None:
        """Kill a worker; nothing follows."""

    def events(self, until: float | None) -> list[Event]:
        """What happened, waiting for something or until a time; None: for as long as it takes."""

    def close(self) -> None:
        """Kill all workers."""


def drive(
    scheduler: Scheduler[Work],
    workers: Workers[Work],
    record: Callable[[list[Verdict[Work]]], None],
    *,
    meet: Callable[[dict[str, Any]], None] = lambda about: None,
    idle: float | None = None,
) -> None:
    """Work until every input has a verdict.

    Args:
        scheduler: What decides.
        workers: What works.
        record: Takes verdicts as they come; with `idle`, at least so often, in seconds.
        meet: Takes a new worker's description of itself.
        idle: See `record`.

    Raises:
        SamgraphError: A worker reports that none can do this.
        EngineError: No worker starts.
    """
    while not scheduler.is_done:
        now = workers.now()
        for action in scheduler.actions(now):
            if isinstance(action, Start):
                workers.start(action.worker)
            elif isinstance(action, Send):
                workers.send(action.worker, action.group, action.inputs)
            else:
                workers.stop(action.worker)
        if scheduler.is_broken:
            raise EngineError("no worker starts", got=scheduler.last_death)
        until = scheduler.next_time(now)
        if idle is not None:
            until = now + idle if until is None else min(until, now + idle)
        if not scheduler.is_done:
            for event in workers.events(until):
                _handle(scheduler, event, workers.now(), meet)
        record(scheduler.take_verdicts())


def _handle(
    scheduler: Scheduler[Work], event: Event, now: float, meet: Callable[[dict[str, Any]], None]
) -> None:
    match event:
        case Ready(worker, about):
            meet(about)
            scheduler.ready(worker, now)
        case Begun(worker, group):
            scheduler.begun(worker, group, now)
        case Finished(worker, group, outcomes):
            scheduler.finished(worker, group, outcomes, now)
        case Died(worker, reason):
            scheduler.died(worker, reason, now)
        case Refused(error):
            raise error
