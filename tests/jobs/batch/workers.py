"""Workers for tests: without a model, and without processes."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samgraph.errors import CheckpointError, OutputError
from samgraph.jobs.batch.driving import Begun, Died, Event, Finished, Ready, Refused
from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.scheduler import Failure, Outcome, Success
from samgraph.jobs.batch.tasks import StopError

SECONDS = 120
ABOUT = {"name": "none", "weights": "0" * 16, "precision": "fp32"}


class ToyRunner:
    """Does what the names of inputs say: `kill`, `fail`, `stop`, or anything else.

    `gate1-...` waits until there is a file `go1` beside it.
    """

    def __init__(self, number: int = 0) -> None:
        self.number, self.about = number, ABOUT

    def run(self, inputs: tuple[Input, ...]) -> list[Outcome]:
        return [self.outcome(found) for found in inputs]

    def outcome(self, found: Input) -> Outcome:
        name = Path(found.name).stem
        if name.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("stop"):
            raise StopError(OutputError("the disk is full"))
        if name.startswith("gate"):
            go = Path(found.path).parent / f"go{name[4]}"
            end = time.monotonic() + SECONDS
            while not go.exists() and time.monotonic() < end:
                time.sleep(0.01)
        if name.startswith("fail"):
            return Failure("unusable image", f"`{found.name}` is bad")
        mask = '{"segmentation":{"size":[1,1],"counts":"01"},"area":1,"bbox":[0,0,1,1],"score":0.5}'
        return Success(f'{{"height":1,"width":1,"annotations":[{mask}]}}'.encode())


def refusing(number: int) -> ToyRunner:
    """A worker whose model cannot be loaded."""
    raise CheckpointError("there is no such model", hint="samgraph models")


class InlineWorkers:
    """A worker in this process, which does everything when it is sent."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make, self._events = make, list[Event]()
        self.runners: dict[int, Any] = {}

    def now(self) -> float:
        return time.monotonic()

    def start(self, worker: int) -> None:
        self.runners[worker] = runner = self._make(worker)
        self._events.append(Ready(worker, runner.about))

    def send(self, worker: int, group: int, inputs: tuple[Input, ...]) -> None:
        self._events.append(Begun(worker, group))
        if any(Path(found.name).stem.startswith("kill") for found in inputs):
            self._events.append(Died(worker, "killed by signal 9"))
            return
        try:
            self._events.append(Finished(worker, group, self.runners[worker].run(inputs)))
        except StopError as error:
            self._events.append(Refused(error.cause))

    def stop(self, worker: int) -> None:
        raise AssertionError("nothing hangs here")

    def events(self, until: float | None) -> list[Event]:
        found, self._events = self._events, []
        return found

    def close(self) -> None:
        self.runners.clear()
