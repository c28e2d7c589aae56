"""What a worker needs to know: which model, how it runs, and what is done with inputs."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from samgraph.engines.devices import AUTO, Device, why_absent
from samgraph.jobs.batch.tasks import TaskOptions, TaskRunner
from samgraph.runtime import CompileOptions

MOST_WORKERS = 8


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The same for all workers of a run; it can be pickled.

    Args:
        task: What is done with inputs.
        model: A name, or the path of a checkpoint.
        device: Where workers run: one device, or several that they take in turn.
        image_size: The model's input size, if not its own.
        compile: How graphs are compiled; `threads` are those of each worker.
        threads_beside: Groups that a worker has in hand at a time.
        make: Makes the runner of a worker instead, for tests; called with its number.
    """

    task: TaskOptions
    model: str
    device: tuple[str, ...] = ("auto",)
    image_size: int | None = None
    compile: CompileOptions = field(default_factory=CompileOptions)
    threads_beside: int = 3
    make: Callable[[int], Any] | None = None

    def runner(self, number: int) -> Any:
        """Load the model of the worker with this number, and compile it.

        Raises:
            SamgraphError: It cannot be loaded.
        """
        if self.make is not None:
            return self.make(number)
        from samgraph.predict.model import load

        device = self.device[number % len(self.device)]
        model = load(self.model, device=device, image_size=self.image_size, options=self.compile)
        runner = TaskRunner(model, self.task)
        runner.warm_up()
        return runner


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_gpu(device: str) -> bool:
    """Whether a device that was asked for is a GPU here."""
    return device.startswith("cuda") or (device == AUTO and why_absent(Device("cuda")) is None)


def default_workers(device: str) -> int:
    """The default number of workers: one per core up to eight, or one on a GPU."""
    return 1 if is_gpu(device) else min(cores(), MOST_WORKERS)
