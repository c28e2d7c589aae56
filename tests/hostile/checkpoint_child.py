"""Loads every file it is told to, while a hook watches for what loading must never do.

    python checkpoint_child.py LIST        one path a line; one line of JSON a path is printed
    python checkpoint_child.py --planted   does each forbidden thing once; prints the exit statuses

The hook ends the process with status 86 at the first forbidden event.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from samgraph.checkpoint import as_float32, check, read, with_meta_names
from samgraph.errors import CheckpointError

CAUGHT = 86
EXPECTED: dict[str, tuple[int, ...]] = {"weight": (2, 3), "bias": (4,)}
ALLOWED = ("os.listdir", "os.scandir")  # a checkpoint may be a folder
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FORBIDDEN = (
    "exec", "compile", "import", "os.", "subprocess.", "socket.", "ctypes.", "pickle.", "marshal.",
    "shutil.", "urllib.", "code.__new__", "function.__new__", "object.__setattr__", "sys._getframe",
)  # fmt: skip


def watch(event: str, arguments: tuple[object, ...]) -> None:
    """End the process if a load does what it must not."""
    writes = False
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        writes = bool(set(mode) & set("wax+")) if isinstance(mode, str) else False
        writes = writes or (isinstance(flags, int) and bool(flags & WRITING))
    if writes or (event.startswith(FORBIDDEN) and event not in ALLOWED):
        os.write(2, f"FORBIDDEN {event} {arguments!r}\n".encode())
        os._exit(CAUGHT)


def load(path: str) -> str:
    """What comes of loading `path`: nothing, or the message of our error."""
    try:
        checkpoint = with_meta_names(read(path))
        check(EXPECTED, as_float32(checkpoint).shapes, source=checkpoint.source)
    except CheckpointError as error:
        return str(error)
    return ""


def report(paths: list[str]) -> None:
    """Load each path and print what came of it, how long it took, and the highest memory so far."""
    for path in paths:
        start = time.perf_counter()
        try:
            message, kind = load(path), "CheckpointError"
        except BaseException as error:
            message, kind = f"{type(error).__name__}: {error}", "other"
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        line = {"path": path, "kind": kind if message else "loaded", "message": message}
        print(json.dumps({**line, "seconds": seconds, "peak": peak}))


PLANTED: dict[str, Callable[[], object]] = {
    "exec": lambda: exec("1"),
    "compile": lambda: compile("1", "x", "eval"),
    "import": lambda: __import__("wave"),
    "system": lambda: os.system("true"),
    "popen": lambda: subprocess.Popen(["true"]),
    "socket": lambda: socket.socket(),
    "open to write": lambda: open("/dev/null", "w").close(),
    "open by number": lambda: os.open("/dev/null", os.O_RDWR),
    "remove": lambda: os.remove("/nonexistent"),
    "nothing": lambda: open("/dev/null", "rb").close(),
}


def planted() -> None:
    """Do each forbidden thing in a process of its own, and print how each ended."""
    statuses = {}
    for name, action in PLANTED.items():
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            sys.addaudithook(watch)
            action()
            os._exit(0)
        statuses[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps(statuses))


def main() -> None:
    """Run as the first argument says."""
    if sys.argv[1] == "--planted":
        planted()
        return
    with open(sys.argv[1], encoding="utf-8") as stream:
        first, *paths = stream.read().splitlines()
    report([first])
    sys.addaudithook(watch)
    report(paths)


if __name__ == "__main__":
    main()
