"""From a checkpoint to the first mask: reading, compiling, and starting from the cache.

    python benchmarks/loading.py [--model sam2.1-tiny]

Every step runs in a fresh process; seconds and megabytes of the whole process are printed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_CHILD = """
import json, sys, time
path, cache, step = sys.argv[1:4]
import numpy

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

before = peak()
from samgraph.runtime import CompileOptions
start = time.perf_counter()
if step == "read":
    from samgraph import checkpoint
    found = checkpoint.as_float32(checkpoint.read(path))
else:
    from samgraph.models.loading import load_model
    model = load_model(path, options=CompileOptions(cache_dir=cache, threads=2))
    loaded = time.perf_counter()
    model.compiled("image_encoder", for_one=True)
    start = loaded
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "megabytes": (peak() - before) / 1024}))
"""


def main() -> None:
    """Write a checkpoint with random weights, then time the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        _write(path, arguments.model)
        size = path.stat().st_size / 1e6
        print(f"{arguments.model}, a .pt of {size:.0f} MB; medians of {arguments.rounds} processes")
        read = _median(path, Path(folder), "read", arguments.rounds)
        print(f"read                     {read['seconds']:6.2f} s  {read['megabytes']:6.0f} MB")
        compiled = [
            _run(path, Path(folder) / f"cache{i}", "compile") for i in range(arguments.rounds)
        ]
        cold = sorted(compiled, key=lambda item: item["seconds"])[len(compiled) // 2]
        print(f"compile image encoder    {cold['seconds']:6.2f} s  {cold['megabytes']:6.0f} MB")
        warm = _median(path, Path(folder) / "cache0", "compile", arguments.rounds)
        print(f"the same from the cache  {warm['seconds']:6.2f} s  {warm['megabytes']:6.0f} MB")


def _write(path: Path, name: str) -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    from samgraph.models.sam2.config import CONFIGS
    from samgraph.models.sam2.graphs import weight_shapes
    from tests.checkpoint.making import torch_file
    from tests.weights import state

    path.write_bytes(torch_file(state(weight_shapes(CONFIGS[name]), 7)))


def _median(path: Path, cache: Path, step: str, rounds: int) -> dict[str, float]:
    results = [_run(path, cache, step) for _ in range(rounds)]
    return sorted(results, key=lambda item: item["seconds"])[rounds // 2]


def _run(path: Path, cache: Path, step: str) -> dict[str, float]:
    command = [sys.executable, "-c", _CHILD, str(path), str(cache), step]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


if __name__ == "__main__":
    main()
