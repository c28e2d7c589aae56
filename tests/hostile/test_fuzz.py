"""The fuzzer finds what is planted, finds nothing else in some seconds, and what it kept stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.keeping import kept_input, target_of
from fuzz.running import Finding, Report
from fuzz.targets import TARGETS, PlantedTarget

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "hostile" / "kept"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_nothing_is_found_in_some_seconds(tmp_path: Path) -> None:
    done = run(0.1, "--seed", 20, "--kept", tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(TARGETS)
    assert int(lines[-1].split()[0].replace(",", "")) > 100
    assert not list(tmp_path.iterdir())


def test_every_planted_fault_is_found_and_kept(tmp_path: Path) -> None:
    # With this seed the first nine inputs are the nine there are.
    done = run(0.15, "--seed", 1123, "--only", "planted", "--stuck", 2, "--kept", tmp_path)

    assert done.returncode == 1, done.stderr
    kept = {kept_input(path)[1].decode() for path in tmp_path.iterdir()}
    assert kept == set(PlantedTarget.faults) - {"none"}
    again = run("--replay", "--kept", tmp_path)
    assert again.returncode == 1
    assert "planted-" in again.stdout


def test_what_was_found_once_is_not_found_again() -> None:
    assert {target_of(path) for path in KEPT.iterdir()} <= set(TARGETS)

    done = run("--replay")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(list(KEPT.iterdir()))} kept inputs, 0 break a promise" in done.stdout


def test_findings_of_one_cause_are_listed_once() -> None:
    where = '  File "x/src/samgraph/a.py", line {}, in f\nKeyError: {}'
    report = Report("x")
    for number, line in enumerate((3, 3, 4)):
        report.add(Finding(number, f"it leaked KeyError: {number}", where.format(line, number)))

    assert [finding.number for finding in report.findings] == [0, 2]
    assert report.broken == 3
