"""A worker process: loads a model, then takes groups of inputs from a pipe and sends outcomes.

Messages to it are `(group, inputs)`; from it, those of `local.py`. A worker ends when its pipe
does, so none outlives the process that started it.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from samgraph.errors import SamgraphError
from samgraph.jobs.batch.settings import WorkerSettings
from samgraph.jobs.batch.tasks import StopError

READY, BEGUN, FINISHED, REFUSED = "ready", "begun", "finished", "refused"


def serve(pipe: "Connection[Any, Any]", settings: WorkerSettings, number: int) -> None:
    """Work until the pipe ends; never returns."""
    with suppress(ValueError, OSError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it decides
    send = _Sender(pipe)
    groups: SimpleQueue[tuple[int, Any]] = SimpleQueue()
    try:
        runner = settings.runner(number)
    except SamgraphError as error:
        send(REFUSED, error_parts(error))
        pipe.close()
        _end(2)

    def work() -> None:
        while True:
            group, inputs = groups.get()
            send(BEGUN, group)
            try:
                send(FINISHED, (group, runner.run(inputs)))
            except StopError as error:
                send(REFUSED, error_parts(error.cause))

    for _ in range(settings.threads_beside):
        threading.Thread(target=work, daemon=True).start()
    send(READY, runner.about)
    while True:
        try:
            groups.put(pipe.recv())
        except (EOFError, OSError):
            _end(0)


class _Sender:
    """Sends from several threads, a message at a time."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def __call__(self, kind: str, content: object) -> None:
        try:
            with self._lock:
                self._pipe.send((kind, content))
        except OSError:  # whoever started this is gone
            _end(0)


def error_parts(error: SamgraphError) -> dict[str, Any]:
    """An error as a message: its class by name, and its parts as text."""
    parts = {
        name: None if value is None else str(value)
        for name, value in (("got", error.got), ("expected", error.expected), ("hint", error.hint))
    }
    return {"kind": type(error).__name__, "what": error.what, **parts}


def _end(code: int) -> None:
    """End now, whatever other threads do."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    os._exit(code)
