"""What a worker does: makes inputs by number and uses each, within limits.

The file `at` in its folder holds the number of the input that is being used, so that the parent
knows which one ended the process or does not end. Broken promises are lines of standard output.
"""

import json
import math
import os
import resource
import struct
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from fuzz.keeping import generator, kept_input
from fuzz.target import BrokenPromiseError, Target
from fuzz.targets import find_target

CAUGHT = 86
COUNTS = struct.Struct("<qqqd")  # number of the current input; taken, refused; slowest, in seconds
FORBIDDEN = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.",
    "socket.connect", "socket.bind", "pickle.find_class", "marshal.load", "webbrowser.", "urllib.",
)  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def run(name: str, seed: int, first: int, seconds: float, folder: Path) -> None:
    """Use inputs from number `first` on, for so long."""
    target = prepared(name, folder)
    at = os.open(folder / "at", os.O_RDWR | os.O_CREAT, 0o600)
    counts = {"taken": 0, "refused": 0}
    slowest, number, end = 0.0, first, time.monotonic() + seconds
    while number == first or time.monotonic() < end:
        os.pwrite(at, COUNTS.pack(number, *counts.values(), slowest), 0)
        data = target.make(generator(seed, name, number))
        try:
            outcome, took = attempt(target, data, folder)
            counts[outcome] += 1
            slowest = max(slowest, took)
        except BrokenPromiseError as error:
            cause = error.__cause__
            where = "".join(traceback.format_exception(cause))[-1500:] if cause else ""
            print(json.dumps({"number": number, "why": str(error), "where": where}), flush=True)
        number += 1
    os.pwrite(at, COUNTS.pack(number, *counts.values(), slowest), 0)


def replay(name: str, folder: Path, paths: list[Path]) -> None:
    """Use inputs that were kept."""
    target = prepared(name, folder)
    at = os.open(folder / "at", os.O_RDWR | os.O_CREAT, 0o600)
    for number, path in enumerate(paths):
        os.pwrite(at, COUNTS.pack(number, 0, 0, 0.0), 0)
        try:
            attempt(target, kept_input(path)[1], folder)
        except BrokenPromiseError as error:
            print(f"{path.name}: {str(error)!a}", flush=True)


def prepared(name: str, folder: Path) -> Target:
    """A target that was warmed up, in a process that is limited and watched."""
    warnings.simplefilter("ignore")
    target = find_target(name)
    for data in target.good():
        target.use(data, folder)
    limit_memory(target.megabytes)
    watch_within(folder)
    return target


def attempt(target: Target, data: bytes, folder: Path) -> tuple[str, float]:
    """Use one input: what came of it, and the CPU seconds it took.

    One that takes far more than it may is ended by the system, with the process.
    """
    limit_cpu(2 * target.seconds + 2)
    start = time.process_time()
    outcome = target.attempt(data, folder)
    took = time.process_time() - start
    if took > target.seconds:
        raise BrokenPromiseError(f"it took {took:.1f} s of CPU time, more than {target.seconds:g}")
    return outcome, took


def limit_memory(megabytes: int) -> None:
    """Limit the address space to so much more than it is now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def limit_cpu(seconds: float) -> None:
    """Let the process compute for so much longer, then have the system end it."""
    soft = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def watch_within(folder: Path) -> None:
    """End the process as soon as it does what reading must never do."""
    allowed = (str(folder), os.devnull, "/proc/self/")

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITING or isinstance(path, int):
                return
            if os.path.abspath(os.fsdecode(path)).startswith(allowed):
                return
        elif not event.startswith(FORBIDDEN) or _is_import(event):
            return
        os.write(2, f"FORBIDDEN {event} {arguments!r}\n"[:500].encode("utf-8", "replace"))
        os._exit(CAUGHT)

    sys.addaudithook(watch)


def _is_import(event: str) -> bool:
    """Whether code is loaded by an import, which some libraries do late."""
    caller = sys._getframe(2).f_code.co_filename
    return event == "marshal.loads" and caller.startswith("<frozen importlib")
