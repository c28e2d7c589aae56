"""Workers as processes of this machine, each with a pipe of its own.

Processes are spawned, not forked: threads of an engine do not survive a fork. No lock is shared, so
that a worker may be killed at any time without harm to the others.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, resource_tracker
from typing import Any

from samgraph import errors
from samgraph.errors import EngineError, SamgraphError
from samgraph.jobs.batch.driving import Begun, Died, Event, Finished, Ready, Refused
from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.settings import WorkerSettings
from samgraph.jobs.batch.worker import BEGUN, FINISHED, READY, REFUSED, serve

JOIN_SECONDS = 10.0


class LocalWorkers:
    """Processes that are started and killed as a scheduler says."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._context = get_context("spawn")
        self._processes: dict[int, Any] = {}
        self._pipes: dict[int, Any] = {}
        self._unstarted: list[Event] = []

    def now(self) -> float:
        """Seconds of the machine's clock, which never goes back."""
        return time.monotonic()

    @property
    def pids(self) -> list[int]:
        """The process ids of live workers."""
        return [process.pid for process in self._processes.values()]

    def start(self, worker: int) -> None:
        """Spawn a process; it loads its model."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=serve, args=(theirs, self._settings, worker), daemon=True
        )
        try:
            with _interrupts_held():
                process.start()
        except OSError as error:  # the system has no room for another process
            ours.close()
            theirs.close()
            self._unstarted.append(Died(worker, f"not started: {error.strerror}"))
            return
        theirs.close()
        self._processes[worker], self._pipes[worker] = process, ours

    def send(self, worker: int, group: int, inputs: tuple[Input, ...]) -> None:
        """Put a group into a worker's pipe, which it always empties."""
        with suppress(OSError):  # it is dead, which `events` will say
            self._pipes[worker].send((group, inputs))

    def stop(self, worker: int) -> None:
        """Kill a worker."""
        process, pipe = self._processes.pop(worker), self._pipes.pop(worker)
        process.kill()
        process.join(JOIN_SECONDS)
        pipe.close()

    def events(self, until: float | None) -> list[Event]:
        """Everything that workers have sent, and which of them have died."""
        found, self._unstarted = self._unstarted, []
        wait = None if until is None else max(0.0, until - self.now())
        wait = 0.0 if found else wait
        numbers = {id(pipe): worker for worker, pipe in self._pipes.items()}
        for pipe in connection.wait(list(self._pipes.values()), wait):
            found += self._received(numbers[id(pipe)], pipe)
        return found

    def close(self) -> None:
        """Kill all workers."""
        for process in self._processes.values():
            process.kill()
        for worker in list(self._processes):
            self.stop(worker)

    def _received(self, worker: int, pipe: Any) -> list[Event]:
        found: list[Event] = []
        try:
            while pipe.poll():
                found.append(_event(worker, *pipe.recv()))
        except (EOFError, OSError):
            found.append(Died(worker, self._cause(worker)))
            self.stop(worker)
        return found

    def _cause(self, worker: int) -> str:
        """Why a process ended."""
        process = self._processes[worker]
        process.join(JOIN_SECONDS)
        code = process.exitcode
        if code is not None and code < 0:
            return f"killed by signal {-code}"
        return f"ended with code {code}"


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started here are deaf to Ctrl-C from their first instruction on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which lets interrupts through when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def error_of(parts: dict[str, Any]) -> SamgraphError:
    """The error that a worker described; see `error_parts`."""
    kind = getattr(errors, parts["kind"], EngineError)
    error: SamgraphError = kind(
        parts["what"], got=parts["got"], expected=parts["expected"], hint=parts["hint"]
    )
    return error


def _event(worker: int, kind: str, content: Any) -> Event:
    if kind == READY:
        return Ready(worker, content)
    if kind == BEGUN:
        return Begun(worker, content)
    if kind == FINISHED:
        return Finished(worker, *content)
    if kind == REFUSED:
        return Refused(error_of(content))
    raise AssertionError(f"a worker sent `{kind}`")
