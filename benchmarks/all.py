"""samgraph and every peer that is installed, side by side: JSON, a plot and a table.

    ./dev peers                                  # installs the peers
    .venv/bin/python benchmarks/all.py [--model sam2.1-tiny] [--rounds 5] [--jobs decode,...]
    .venv/bin/python benchmarks/all.py --page docs/performance.md

Every peer lives in its own process and is asked for one run at a time, in turn, so that a busy
machine slows all alike; the first run of each job is not counted. Same weights (transformers has
its own), inputs and threads. A peer that cannot start or dies is listed as such; why is on standard
error. `--kind cpu` compares processor time, for machines that are shared: with --threads 1, since
threads of torch that wait for each other spin, which counts. Writes `all.json` and `all.svg` into
--out, and puts the table between the marks of --page.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peers import PEERS, SLOW, WHOLE
from side_by_side import PAUSE_SECONDS, Peer
from tables import bars, fill_page, table

FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd")


def main() -> None:
    """Run what was asked for and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kind", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--jobs", default=",".join(WHOLE))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--starts", action="store_true", help="cold and warm start to a mask")
    parser.add_argument("--out", type=Path, default=Path("benchmarks") / "results")
    parser.add_argument("--page", type=Path, help="a Markdown file to put the table into")
    arguments = parser.parse_args()
    jobs, names = arguments.jobs.split(","), arguments.peers.split(",")
    for given, known in ((jobs, WHOLE), (names, tuple(PEERS))):
        unknown = [word for word in given if word not in known]
        if unknown:
            parser.error(f"there is no `{unknown[0]}`; there are {', '.join(known)}")
    found = measure(arguments, jobs, names)
    if arguments.starts:
        found["starts"] = starts()
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "all.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (arguments.out / "all.svg").write_text(bars(found), encoding="utf-8")
    text = table(found)
    if arguments.page:
        fill_page(arguments.page, text)
    print(text)


def measure(arguments: argparse.Namespace, jobs: list[str], names: list[str]) -> dict[str, Any]:
    """Seconds of every job on every peer, its memory and size, and what failed, with the reason."""
    peers: dict[str, Peer] = {}
    seconds: dict[str, dict[str, list[float]]] = {job: {} for job in jobs}
    failed: dict[str, str] = {}
    for name in names:  # one after another: a peer that loads would slow one that runs
        peers[name] = _start(arguments, name)
        try:
            peers[name].ask("memory")
        except (RuntimeError, OSError, ValueError) as error:
            failed[name] = f"start: {error}"
    for turn in range(1 + arguments.rounds):
        for name, peer in peers.items():
            if name in failed:
                continue
            time.sleep(PAUSE_SECONDS)
            for job in [job for job in jobs if job in PEERS[name].jobs]:
                if job in SLOW and turn > 1:
                    continue
                try:
                    spent = peer.ask(job)[arguments.kind]
                except (RuntimeError, OSError, ValueError) as error:
                    failed[name] = f"{job}: {error}"
                    break
                if turn > 0:
                    seconds[job].setdefault(name, []).append(spent)
    peaks = {name: peers[name].ask("memory")["peak"] for name in names if name not in failed}
    for name in peaks:
        peers[name].close()
    return {
        "machine": machine(),
        "settings": {
            "model": arguments.model, "threads": arguments.threads, "kind": arguments.kind,
            "rounds": arguments.rounds,
        },
        "seconds": {
            job: {name: _summary(times) for name, times in row.items()}
            for job, row in seconds.items()
        },
        "peak_mb": peaks,
        "installed_mb": {name: installed(PEERS[name].packages) for name in names},
        "versions": {name: versions(PEERS[name].packages) for name in names},
        "failed": failed,
    }  # fmt: skip


def _start(arguments: argparse.Namespace, name: str) -> Peer:
    script = str(Path(__file__).with_name("peers.py"))
    options = ["--model", arguments.model, "--threads", str(arguments.threads)]
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


def installed(packages: tuple[str, ...]) -> int:
    """Megabytes of the packages' files."""
    total = 0
    for package in packages:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        paths = (Path(str(file.locate())) for file in files)
        total += sum(path.stat().st_size for path in paths if path.is_file())
    return total >> 20


def starts() -> dict[str, float]:
    """Seconds from starting Python to a mask of the built-in model: empty cache, then filled."""
    import tempfile

    script = (
        "import numpy, samgraph; "
        "samgraph.load().image(numpy.zeros((480, 640, 3), 'uint8')).predict(points=[(9, 9)]).mask"
    )
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "SAMGRAPH_CACHE": cache}
        for name in ("cold", "warm"):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", script], env=environment, check=True)
            found[name] = time.perf_counter() - begin
    return found


if __name__ == "__main__":
    main()
