"""Makes the golden files of this folder from the reference: `python tests/golden/make.py`.

Needs torch, the PyPI package `sam2`, Pillow and numpy. `--check` writes nothing: it runs the
reference again in float64 and with two threads, and prints how far each kind of array moves.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.golden.components import record_components  # noqa: E402
from tests.golden.configs import CONFIGS  # noqa: E402
from tests.golden.image import record_image  # noqa: E402
from tests.golden.quiet import record_quiet  # noqa: E402
from tests.golden.reading import Golden  # noqa: E402
from tests.golden.recording import Recorder  # noqa: E402
from tests.golden.video import record_video  # noqa: E402
from tests.parity.reference import build_reference  # noqa: E402

# File name, configuration, seed of the weights, and how it is recorded. The seeds were chosen for
# their decisions: different masks win, stability falls on both sides, scores have both signs, and
# all are clear of their limits.
FILES: Mapping[str, tuple[str, int, Callable[[Any], Recorder]]] = {
    "components_test": ("test", 14, lambda model: record_components(model, CONFIGS["test"])),
    "components_test2": ("test2", 14, lambda model: record_components(model, CONFIGS["test2"])),
    "quiet_test": ("test", 14, lambda model: record_quiet(model, CONFIGS["test"])),
    "image_test": ("test", 14, record_image),
    "video_test": ("test", 107, lambda model: record_video(model, "bfloat16")),
    "video_test_fp32mem": ("test", 100, lambda model: record_video(model, "float32")),
}


def record(
    name: str, precision: Literal["float32", "float64"] = "float32", threads: int = 1
) -> Recorder:
    """Run the reference for one file; the number of threads changes the rounding."""
    import torch

    config, seed, recording = FILES[name]
    torch.set_num_threads(threads)
    model = build_reference(config, seed, precision=precision)
    recorder = recording(model)
    recorder.meta |= {
        "name": config,
        "config": CONFIGS[config].as_json(),
        "weights_seed": seed,
        "reference": "PyPI sam2 1.1.0, torch CPU, float32, one thread",
    }
    return recorder


def main() -> None:
    """Make or check the files named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=list(FILES), metavar="FILE")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    for name in options.files:
        started = time.perf_counter()
        path = HERE / f"{name}.npz"
        if options.check:
            print(f"{name}: float64", _noise(Golden(path), record(name, "float64")))
            print(f"{name}: 2 threads", _noise(Golden(path), record(name, threads=2)))
        else:
            size = record(name).write(path)
            print(f"{path.name}: {size / 1e6:.2f} MB, {time.perf_counter() - started:.1f} s")


def _noise(stored: Golden, again: Recorder) -> dict[str, Any]:
    """The worst difference by kind of array: relative to absmax, absolute, or differing pixels."""
    worst: dict[str, tuple[float, str]] = {}
    for name, array in again.whole.items():
        end = name.rsplit("_", 1)[-1]
        kind = name.split("_")[0].rstrip("0123456789")
        if end == "bits":
            kind, error = f"{kind} pixels", stored.disagreement(name, array)
        elif end in ("ious", "iou", "score", "stability"):
            kind, error = f"{kind} {end} (absolute)", stored.difference(name, array)
        else:
            error = stored.compare(name, array)
        worst[kind] = max(worst.get(kind, (0.0, "")), (error, name))
    return {kind: f"{error:.1e} ({name})" for kind, (error, name) in worst.items()}


if __name__ == "__main__":
    main()
