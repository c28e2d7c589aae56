"""samgraph and every peer that is installed, side by side: JSON, plots, tables, targets.

    ./dev peers                                  # installs the peers
    .venv/bin/python benchmarks/all.py --page docs/performance.md          # hours
    .venv/bin/python benchmarks/all.py --quick --page docs/performance.md  # 25 minutes at most
    .venv/bin/python benchmarks/all.py --jobs decode,click --peers "samgraph fp32,torch eager"

Every peer lives in its own process and is asked for one run at a time, in turn, so that a busy
machine slows all alike; the first run of each job is not counted. Same weights (transformers has
its own), inputs and threads. A peer that cannot start, dies or does not answer is listed as such;
why is on standard error. `--kind cpu` compares processor time, for machines that are shared: with
--threads 1, since threads of torch that wait for each other spin, which counts. Writes `all.json`,
`all.svg` and `growth.svg` into --out, and puts the tables between the marks of --page, the plots
into `media` beside it.

--quick: three rounds, a bank with all masks and fewer pointers, a grid of 8 x 8 points for
everything, sixteen objects for samgraph alone; after --minutes no further round is begun.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers import NOT_QUICK, PEERS, SLOW, WHOLE
from side_by_side import PAUSE_SECONDS, Peer
from starts import first_masks, installed_megabytes
from tables import bars, fill_page, growth, table
from targets import targets_table

FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd")
ROUNDS, QUICK_ROUNDS = 5, 3
MINUTES, QUICK_MINUTES = 600, 16


def main() -> None:
    """Run what was asked for and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kind", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--jobs", default=",".join(WHOLE))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--no-starts", action="store_true", help="no cold and warm starts")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--minutes", type=float, help="after which no further round is begun")
    parser.add_argument("--out", type=Path, default=Path("benchmarks") / "results")
    parser.add_argument("--page", type=Path, help="a Markdown file to put the tables into")
    arguments = parser.parse_args()
    jobs, names = arguments.jobs.split(","), arguments.peers.split(",")
    for given, known in ((jobs, WHOLE), (names, tuple(PEERS))):
        unknown = [word for word in given if word not in known]
        if unknown:
            parser.error(f"there is no `{unknown[0]}`; there are {', '.join(known)}")
    quick = arguments.quick
    arguments.rounds = arguments.rounds or (QUICK_ROUNDS if quick else ROUNDS)
    arguments.minutes = arguments.minutes or (QUICK_MINUTES if quick else MINUTES)
    with tempfile.TemporaryDirectory() as folder:
        arguments.exports = Path(folder)
        found = measure(arguments, jobs, names)
        if not arguments.no_starts:
            found["starts"], failed = first_masks(
                names, Path(folder), arguments.model, arguments.threads
            )
            found["failed"] |= {f"{name}, starting": why for name, why in failed.items()}
    write(arguments, found)


def write(arguments: argparse.Namespace, found: dict[str, Any]) -> None:
    """The files of --out, and the page."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    plots = {"all.svg": bars(found), "growth.svg": growth(found)}
    (arguments.out / "all.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    command = " ".join(["python", *(f'"{x}"' if " " in x else x for x in sys.argv)])
    text = "\n".join([table(found), f"* command: `{command}`", "", *targets_table(found)])
    for name, plot in plots.items():
        (arguments.out / name).write_text(plot, encoding="utf-8")
    if arguments.page:
        media = arguments.page.parent / "media"
        media.mkdir(exist_ok=True)
        for name, plot in plots.items():
            (media / f"cpu-{name}").write_text(plot, encoding="utf-8")
        shown = ("![every job, by peer](media/cpu-all.svg)", "![growth](media/cpu-growth.svg)")
        fill_page(arguments.page, "\n\n".join([text, *shown]))
    print(text)


def measure(arguments: argparse.Namespace, jobs: list[str], names: list[str]) -> dict[str, Any]:
    """Seconds of every job on every peer, its memory and size, and what failed, with the reason."""
    peers: dict[str, Peer] = {}
    seconds: dict[str, dict[str, list[float]]] = {job: {} for job in jobs}
    failed: dict[str, str] = {}
    tracking: dict[str, float] = {}
    deadline = time.monotonic() + 60 * arguments.minutes
    for name in names:  # one after another: a peer that loads would slow one that runs
        peers[name] = _start(arguments, name)
        try:
            peers[name].ask("memory")
        except (RuntimeError, OSError, ValueError) as error:
            failed[name] = f"start: {error}"
    for turn in range(1 + arguments.rounds):
        if turn > 1 and time.monotonic() > deadline:
            break
        for name, peer in peers.items():
            if name in failed:
                continue
            time.sleep(PAUSE_SECONDS)
            for job in _jobs(arguments, name, jobs, turn):
                try:
                    spent = peer.ask(job)[arguments.kind]
                    if turn == 0 and job == "track_1":
                        tracking[name] = peer.ask("memory")["peak"]
                except (RuntimeError, OSError, ValueError) as error:
                    failed[name] = f"{job}: {error}"
                    break
                if turn > 0:
                    seconds[job].setdefault(name, []).append(spent)
                print(f"{name}: {job} {spent:.2f} s", file=sys.stderr, flush=True)
    peaks = {name: peers[name].ask("memory")["peak"] for name in names if name not in failed}
    for peer in peers.values():
        peer.close()
    return {
        "machine": machine(),
        "settings": {
            "model": arguments.model, "threads": arguments.threads, "kind": arguments.kind,
            "rounds": arguments.rounds, "quick": arguments.quick,
        },
        "seconds": {
            job: {name: _summary(times) for name, times in row.items()}
            for job, row in seconds.items()
        },
        "peak_mb": peaks,
        "tracking_mb": tracking,
        "installed_mb": {name: installed_megabytes(PEERS[name].packages) for name in names},
        "versions": {name: versions(PEERS[name].packages) for name in names},
        "failed": failed,
    }  # fmt: skip


def _jobs(arguments: argparse.Namespace, name: str, jobs: list[str], turn: int) -> list[str]:
    """The jobs of a peer in a round, in the order of its table; slow ones in the first two."""
    left_out = {job for peer, job in NOT_QUICK if peer == name} if arguments.quick else set()
    wanted = [job for job in PEERS[name].jobs if job in jobs and job not in left_out]
    return [job for job in wanted if turn <= 1 or job not in SLOW]


def _start(arguments: argparse.Namespace, name: str) -> Peer:
    script = str(Path(__file__).with_name("peers.py"))
    options = ["--model", arguments.model, "--threads", str(arguments.threads)]
    options += ["--exports", str(arguments.exports), *(["--quick"] if arguments.quick else [])]
    return Peer(name, [sys.executable, script, name, *options])


def _summary(times: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(times), "low": min(times), "high": max(times),
        "runs": len(times),
    }  # fmt: skip


def machine() -> dict[str, Any]:
    """The processor, its features, and the load when the run began."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    flags = fields.get("flags", fields.get("Features", "")).split()
    return {
        "processor": fields.get("model name", platform.machine()),
        "cores": os.cpu_count(),
        "features": [feature for feature in FEATURES if feature in flags],
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """The version of each package that is installed."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
