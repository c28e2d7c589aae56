"""`python -m fuzz [MINUTES]`: run the targets in turn, report, and keep what broke a promise."""

import argparse
import sys
import textwrap
from itertools import groupby
from pathlib import Path

from fuzz.keeping import keep, target_of
from fuzz.running import STUCK_SECONDS, Report, fuzz, replay
from fuzz.targets import TARGETS, PlantedTarget

KEPT = Path(__file__).resolve().parents[1] / "tests" / "hostile" / "kept"


def main() -> int:
    """Fuzz as the command line says; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=1.0, help="for all targets")
    parser.add_argument("--only", action="append", choices=[*TARGETS, PlantedTarget.name])
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where findings are kept")
    parser.add_argument("--replay", action="store_true", help="only use what was kept")
    parser.add_argument("--stuck", type=float, default=STUCK_SECONDS, help="wall seconds per input")
    given = parser.parse_args()
    if given.replay:
        return _replay(given.kept)
    names = given.only or list(TARGETS)
    reports = []
    for name in names:
        seconds = 60 * given.minutes / len(names)
        report = fuzz(name, given.seed, seconds, stuck=given.stuck)
        reports.append(report)
        print(line(report), flush=True)
        for finding in report.findings:
            path = keep(given.kept, name, given.seed, finding)
            print(f"    {ascii(finding.why)[1:150]}\n    kept as {path.name}")
            print(textwrap.indent(finding.where[-600:], " " * 8), flush=True)
    broken = sum(report.broken for report in reports)
    print(f"{sum(report.inputs for report in reports):,} inputs, {broken} broke a promise")
    return 1 if broken else 0


def _replay(folder: Path) -> int:
    paths = sorted(folder.glob("*.json"))
    broken = []
    for name, group in groupby(paths, target_of):
        broken += replay(name, list(group))
    print("\n".join([*broken, f"{len(paths)} kept inputs, {len(broken)} break a promise"]))
    return 1 if broken else 0


def line(report: Report) -> str:
    """What became of the inputs of a target."""
    return (
        f"{report.name:12} {report.inputs:9,} inputs: {report.taken:,} taken, {report.refused:,} "
        f"refused, {report.broken} broke a promise; slowest {report.slowest:.2f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
