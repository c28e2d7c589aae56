"""Workers as Ray actors, on this machine or on a cluster: the same scheduler, the same results.

An actor may live on another machine: inputs, and the folder for embeddings and videos, are read and
written there, so they are on a shared file system or in object storage. Masks travel back and are
written by the process that started the run.
"""

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from samgraph.errors import EngineError
from samgraph.jobs.batch.driving import Begun, Died, Event, Finished, Ready, Refused
from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.local import error_of
from samgraph.jobs.batch.settings import WorkerSettings
from samgraph.jobs.batch.tasks import StopError
from samgraph.jobs.batch.worker import error_parts
from samgraph.untrusted.text import shown

LOCAL = "local"
CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where Ray runs, and what a worker takes of it.

    Args:
        address: Of a cluster; "local" starts Ray on this machine, "auto" finds one that runs.
        cpus: Cores per worker.
        gpus: GPUs per worker, also a share of one.
    """

    address: str = LOCAL
    cpus: float = 1.0
    gpus: float = 0.0


class RayWorkers:
    """Actors that are started and killed as a scheduler says.

    Raises:
        EngineError: Ray is not installed, or cannot be reached.
    """

    def __init__(self, settings: WorkerSettings, options: RayOptions) -> None:
        self._ray = ray = _imported()
        self._settings, self._options = settings, options
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _connect(ray, options.address)
        self._kind = ray.remote(Actor)
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, tuple[int, int | None]] = {}  # a group, or None for the start
        self._begun: list[Event] = []

    def now(self) -> float:
        """Seconds of this machine's clock, which never goes back."""
        return time.monotonic()

    def capacity(self) -> int:
        """How many workers the cluster has room for."""
        have = self._ray.cluster_resources()
        room = have.get("CPU", 1.0) / self._options.cpus if self._options.cpus else 1e9
        if self._options.gpus:
            room = min(room, have.get("GPU", 0.0) / self._options.gpus)
        return max(1, int(min(room, 1e6)))

    def start(self, worker: int) -> None:
        """Ask for an actor; Ray starts it where there is room."""
        actor = self._kind.options(
            num_cpus=self._options.cpus,
            num_gpus=self._options.gpus,
            max_restarts=0,
            max_concurrency=self._settings.threads_beside,
        ).remote(self._settings, worker)
        self._actors[worker] = actor
        self._calls[actor.load.remote()] = (worker, None)

    def send(self, worker: int, group: int, inputs: tuple[Input, ...]) -> None:
        """Call an actor, which has a thread for each group."""
        call = self._actors[worker].run.remote(inputs)
        self._calls[call] = (worker, group)
        self._begun.append(Begun(worker, group))

    def stop(self, worker: int) -> None:
        """Kill an actor."""
        actor = self._actors.pop(worker)
        self._calls = {call: of for call, of in self._calls.items() if of[0] != worker}
        with suppress(Exception):  # it may be dead already
            self._ray.kill(actor)

    def events(self, until: float | None) -> list[Event]:
        """What actors have returned, and which of them have died."""
        found, self._begun = self._begun, []
        wait = None if until is None else max(0.0, until - self.now())
        if not self._calls:
            if not found:
                time.sleep(0.05 if wait is None else min(wait, 0.5))
            return found
        calls = list(self._calls)
        done, _ = self._ray.wait(calls, num_returns=1, timeout=0 if found else wait)
        if done:
            done, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        for call in done:
            if call in self._calls:  # not of an actor whose death was found just now
                found.append(self._returned(call, *self._calls.pop(call)))
        return found

    def close(self) -> None:
        """Kill all actors; Ray ends where it was started here."""
        for worker in list(self._actors):
            self.stop(worker)
        if self._is_ours:
            with suppress(Exception):
                self._ray.shutdown()

    def _returned(self, call: Any, worker: int, group: int | None) -> Event:
        exceptions = self._ray.exceptions
        try:
            refused, content = self._ray.get(call)
        except exceptions.RayTaskError as error:
            return self._raised(worker, group, error)
        except exceptions.RayError as error:
            self.stop(worker)
            return Died(worker, f"Ray: {type(error).__name__}")
        if refused:
            return Refused(error_of(content))
        return Ready(worker, content) if group is None else Finished(worker, group, content)

    def _raised(self, worker: int, group: int | None, error: Exception) -> Event:
        """An exception of our own code in an actor: of its start, or of a group of inputs."""
        self.stop(worker)
        what = "start" if group is None else "group"
        cause = getattr(error, "cause", error)
        return Died(worker, f"an error in its {what}: {type(cause).__name__}: {str(cause)[:300]}")


class Actor:
    """A worker on Ray: replies are pairs: whether it refuses, and the reply."""

    def __init__(self, settings: WorkerSettings, number: int) -> None:
        self._settings, self._number = settings, number
        self._runner: Any = None

    def load(self) -> tuple[bool, Any]:
        """Load the model; which one it is."""
        from samgraph.errors import SamgraphError

        try:
            self._runner = self._settings.runner(self._number)
        except SamgraphError as error:
            return True, error_parts(error)
        return False, self._runner.about

    def run(self, inputs: tuple[Input, ...]) -> tuple[bool, Any]:
        """Work on a group; an outcome for each input."""
        try:
            return False, self._runner.run(inputs)
        except StopError as error:
            return True, error_parts(error.cause)

    def process_id(self) -> int:
        """The process that the actor is."""
        return os.getpid()


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise EngineError("Ray is not installed", hint="pip install 'samgraph[scale]'") from error
    return ray


def check_reachable(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would try for minutes.

    Raises:
        EngineError: It is not HOST:PORT, or cannot be reached.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise EngineError(
            f"`{shown(address)}` is no address of Ray", expected=f"HOST:PORT, auto or {LOCAL}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise EngineError(
            f"Ray cannot be reached at `{shown(address)}`", got=shown(str(error))
        ) from error


def _connect(ray: Any, address: str) -> None:
    if address not in (LOCAL, "auto"):
        check_reachable(address)
    try:
        ray.init(
            address=address,
            logging_level="ERROR",
            log_to_driver=False,
            **({"include_dashboard": False} if address == LOCAL else {}),
        )
    except Exception as error:  # of many kinds
        raise EngineError(
            f"Ray cannot be reached at `{address}`", got=str(error)[:300] or type(error).__name__
        ) from error
