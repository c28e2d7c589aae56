"""From starting Python to the first mask of an image of 640 x 480, and what is installed for it.

    python benchmarks/starts.py PEER FOLDER --model sam2.1-tiny --threads 2

prints nothing: it is timed from outside, by `first_masks`. FOLDER has the weights, and what
samgraph has compiled: empty for a cold start, filled for a warm one. Peers compile nothing ahead,
so that their second start differs from the first by the system's cache of files alone. Warm starts
are repeated in turn, and the median counts.

Python's bytecode is there, as pip leaves it, for samgraph's source and the peers' helpers too.
"""

import argparse
import compileall
import importlib.metadata
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PEERS = ("samgraph fp32", "torch eager", "transformers")
POINT = (320.0, 240.0)
LIMIT_SECONDS = 300
WARM_ROUNDS = 3


def main() -> None:
    """Make one mask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    picture = np.zeros((480, 640, 3), np.uint8)
    if arguments.peer == "samgraph fp32":
        import samgraph

        model = samgraph.load(arguments.folder / "weights.safetensors", threads=arguments.threads)
        mask = model.image(picture).predict(points=[POINT]).mask
    elif arguments.peer == "torch eager":
        mask = _with_torch(arguments, picture)
    else:
        mask = _with_transformers(arguments, picture)
    if mask.shape[-2:] not in ((480, 640), (256, 256)):
        raise SystemExit(f"a mask of {mask.shape}")


def _with_torch(arguments: argparse.Namespace, picture: np.ndarray) -> Any:
    import torch
    from safetensors.numpy import load_file

    from tests.golden.image import image_predictor
    from tests.parity.reference import build_reference

    torch.set_num_threads(arguments.threads)
    state = load_file(arguments.folder / "weights.safetensors")
    predictor = image_predictor(build_reference(arguments.model.replace("-", "_"), state=state))
    predictor.set_image(picture)
    return predictor.predict(np.array([POINT]), np.array([1]), multimask_output=False)[0]


def _with_transformers(arguments: argparse.Namespace, picture: np.ndarray) -> Any:
    import torch
    from transformers import Sam2Model

    torch.set_num_threads(arguments.threads)
    model = Sam2Model.from_pretrained(arguments.folder / "transformers").eval()
    side = 1024
    image = torch.from_numpy(picture).permute(2, 0, 1)[None].float() / 255
    image = torch.nn.functional.interpolate(image, (side, side), mode="bilinear")
    points, labels = torch.tensor([[[POINT]]]), torch.ones(1, 1, 1, dtype=torch.int32)
    with torch.inference_mode():
        return model(pixel_values=image, input_points=points, input_labels=labels).pred_masks


def write_weights(folder: Path, model: str, names: list[str]) -> None:
    """The same random weights for all; for transformers in its own format and of its own."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    from safetensors.numpy import save_file

    from samgraph.models.sam2.config import CONFIGS
    from samgraph.models.sam2.graphs import weight_shapes
    from tests.weights import tensor

    shapes = weight_shapes(CONFIGS[model])
    save_file(
        {key: np.ascontiguousarray(tensor(key, shape, 7)) for key, shape in shapes.items()},
        folder / "weights.safetensors",
    )
    if "transformers" in names:
        from transformers import Sam2Config, Sam2Model

        Sam2Model(Sam2Config()).save_pretrained(folder / "transformers")


def first_masks(
    names: list[str], folder: Path, model: str, threads: int
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Seconds to the first mask by peer, cold and warm, and what failed."""
    chosen = [name for name in names if name in PEERS]
    failed: dict[str, str] = {}
    try:
        write_weights(folder, model, chosen)
    except (ImportError, OSError, ValueError) as error:
        return {}, {"starts": f"{type(error).__name__}: {error}"}
    for part in ("src/samgraph", "tests/golden", "tests/parity"):
        compileall.compile_dir(ROOT / part, quiet=1)
    found: dict[str, dict[str, list[float]]] = {}
    for kind in ("cold", *["warm"] * WARM_ROUNDS):
        for name in chosen:
            if name in failed:
                continue
            options = ["--model", model, "--threads", str(threads)]
            try:
                spent = _start([sys.executable, __file__, name, str(folder), *options], folder)
            except (subprocess.SubprocessError, OSError) as error:
                said = str(getattr(error, "stderr", "") or error).strip().splitlines()
                failed[name] = f"{kind} start: {said[-1] if said else error}"
                continue
            found.setdefault(name, {}).setdefault(kind, []).append(spent)
    return {
        name: {kind: statistics.median(times) for kind, times in kinds.items()}
        for name, kinds in found.items()
    }, failed


def _start(command: list[str], folder: Path) -> float:
    """The seconds that a peer takes, in an environment of its own."""
    environment = {
        **os.environ,
        "SAMGRAPH_CACHE": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    environment.pop("PYTHONPYCACHEPREFIX", None)
    begin = time.perf_counter()
    subprocess.run(
        command, env=environment, check=True, timeout=LIMIT_SECONDS,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    return time.perf_counter() - begin


def with_requirements(packages: tuple[str, ...]) -> list[str]:
    """The packages and all that they need, without extras."""
    from packaging.requirements import Requirement

    found: dict[str, None] = {}
    waiting = list(packages)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found[name] = None
        for text in needed:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return sorted(found)


def installed_megabytes(packages: tuple[str, ...]) -> int:
    """The size of the packages' files and of all that they need; samgraph's own source beside."""
    total = 0
    for name in with_requirements(packages):
        files = importlib.metadata.files(name) or []
        paths = [Path(str(file.locate())) for file in files]
        if name == "samgraph":  # installed as a link to its source
            paths = [path for path in (ROOT / "src").rglob("*") if "__pycache__" not in path.parts]
        total += sum(path.stat().st_size for path in paths if path.is_file())
    return total >> 20


if __name__ == "__main__":
    main()
