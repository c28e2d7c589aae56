"""The parent process: forks a worker per target, ends one that is stuck, gathers what was found."""

import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz import worker
from fuzz.worker import COUNTS

STUCK_SECONDS = 60.0  # of wall time for one input, on a busy machine
START_SECONDS = 60.0  # for a worker to warm up, in addition
MOST_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that broke a promise: its number, what it did, and the end of the traceback."""

    number: int
    why: str
    where: str = ""

    @property
    def cause(self) -> str:
        """The same for inputs that fail at the same line, or in the same way."""
        lines = re.findall(r'^  File "[^"]*samgraph/([^"]*)", line (\d+)', self.where, re.M)
        kind = re.sub(r"[\d,.]+", "0", self.why.partition(":")[0])
        return f"{kind} {':'.join(lines[-1]) if lines else self.where[:16]}"


@dataclass(slots=True)
class Report:
    """What became of the inputs of one target; of findings with one cause, the first is listed."""

    name: str
    inputs: int = 0
    taken: int = 0
    refused: int = 0
    broken: int = 0
    slowest: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Count a finding."""
        self.broken += 1
        if finding.cause not in {known.cause for known in self.findings}:
            self.findings.append(finding)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended: its exit code, the lines it printed, its errors, its last counts."""

    code: int
    is_stuck: bool
    lines: list[str]
    errors: str
    counts: tuple[int, int, int, float] | None

    @property
    def why(self) -> str:
        """What the last input did, in words."""
        if self.is_stuck:
            return "it did not end"
        if self.code == -signal.SIGXCPU:
            return "it took more CPU time than the process may"
        return f"it ended the process ({self.code})"


def fuzz(name: str, seed: int, seconds: float, *, stuck: float = STUCK_SECONDS) -> Report:
    """Run a target; a worker that an input has ended is started again after that input."""
    report, first = Report(name), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(report.findings) < MOST_FINDINGS:
        first = _fuzz_once(report, seed, first, end - time.monotonic(), stuck)
    return report


def replay(name: str, paths: list[Path]) -> list[str]:
    """Use the kept inputs of one target; a line for each that breaks a promise."""
    ending = _in_child(lambda folder: worker.replay(name, folder, paths), STUCK_SECONDS)
    if ending.code == 0:
        return ending.lines
    if ending.counts is None or ending.code == 1:
        raise RuntimeError(f"the fuzzer itself failed at target `{name}`: {ending.errors}")
    return [*ending.lines, f"{paths[ending.counts[0]].name}: {ending.why}"]


def _fuzz_once(report: Report, seed: int, first: int, seconds: float, stuck: float) -> int:
    """One worker until its time is over or an input ends it; the number to continue from."""
    name = report.name
    ending = _in_child(lambda folder: worker.run(name, seed, first, seconds, folder), stuck)
    if ending.counts is None or ending.code == 1:
        raise RuntimeError(f"the fuzzer itself failed at target `{name}`: {ending.errors}")
    for line in ending.lines:
        report.add(Finding(**json.loads(line)))
    number, taken, refused, slowest = ending.counts
    report.taken, report.refused = report.taken + taken, report.refused + refused
    report.slowest = max(report.slowest, slowest)
    if ending.code == 0:
        report.inputs += number - first
        return number
    report.inputs += number - first + 1
    report.add(Finding(number, ending.why, ending.errors))
    return number + 1


def _in_child(work: Callable[[Path], None], stuck: float) -> Ending:
    """Do work in a process of its own, which has a folder of its own."""
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with TemporaryDirectory(dir=shared, prefix="samgraph-fuzz-") as name:
        folder = Path(name)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _be_child(work, folder)
        code, is_stuck = _wait(child, folder / "at", stuck)
        lines = (folder / "out").read_text(encoding="utf-8").splitlines()
        errors = (folder / "err").read_text(encoding="utf-8", errors="replace")[-1500:]
        return Ending(code, is_stuck, lines, errors, _counts(folder / "at"))


def _be_child(work: Callable[[Path], None], folder: Path) -> None:
    """Work and end; never returns."""
    code = 1
    try:
        streams = [os.open(os.devnull, os.O_RDONLY)]
        streams += [
            os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600) for name in ("out", "err")
        ]
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.environ["SAMGRAPH_CACHE"] = str(folder / "cache")
        work(folder)
        sys.stdout.flush()
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _wait(child: int, at: Path, stuck: float) -> tuple[int, bool]:
    """Wait for a worker: its exit code, and whether one input took so long that it was killed."""
    last, since = None, time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), False
        time.sleep(0.02)
        counts = _counts(at)
        now = None if counts is None else counts[0]
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > stuck + (START_SECONDS if now is None else 0.0):
            os.kill(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), True


def _counts(path: Path) -> tuple[int, int, int, float] | None:
    """What the worker has written down last; None before its first input."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    return COUNTS.unpack(raw) if len(raw) == COUNTS.size else None
