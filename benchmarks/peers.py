"""The peers of `all.py`: what each is, what it can do, and the process that does it.

    python benchmarks/peers.py NAME --model sam2.1-tiny --threads 2

A peer that needs what is not installed dies with one line on standard error, which `all.py` shows.
"""

import argparse
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import images
import numpy as np
import parts
import video
from side_by_side import serve

Jobs = dict[str, Callable[[], object]]
PARTS = (
    "image_encoder", "decode", "memory_encoder",
    "memory_attention_1", "memory_attention_3", "memory_attention_7",
)  # fmt: skip
TRACKS = ("track_1", "track_4", "track_16")
FEW_TRACKS = ("track_1", "track_4")
SIZES = ("size_256", "size_512", "size_768")  # pixels; a tracked frame
LENGTHS = ("length_16", "length_64", "length_256")  # frames before; a tracked frame at 256 pixels
SLOW = ("everything", "track_16")  # one round is enough
QUICK_WARM = 6  # frames: the masks of the bank are full, some pointers are missing
QUICK_POINTS = 8  # along a side, for everything


@dataclass(frozen=True, slots=True)
class PeerKind:
    """A peer: the packages whose sizes and versions are reported, and its jobs."""

    packages: tuple[str, ...]
    jobs: tuple[str, ...]
    make: Callable[[argparse.Namespace], Jobs]


def main() -> None:
    """Be a peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--exports", type=Path, help="a folder to keep exported models in")
    arguments = parser.parse_args()
    arguments.image = None
    if arguments.quick:
        video.WARM = QUICK_WARM
        images.THRESHOLDS["points_per_side"] = QUICK_POINTS
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        jobs = PEERS[arguments.name].make(arguments)
    except ImportError as error:
        raise SystemExit(f"{arguments.name}: {error}") from error
    serve(jobs)


def samgraph_fp32(arguments: argparse.Namespace) -> Jobs:
    """Ours: parts, a click from prompt to masks, everything, tracking."""
    whole = images.Samgraph(arguments)
    tracks = {name: _our_track(arguments, _number(name)) for name in TRACKS}
    sizes = {name: _our_track(arguments, 1, size=_number(name)) for name in SIZES}
    lengths = {name: _our_track(arguments, 1, size=256) for name in LENGTHS}
    return {
        **_late(PARTS, lambda: parts.samgraph_jobs(arguments.model, arguments.threads)),
        "click": whole.click,
        "everything": whole.everything,
        **_steps(tracks),
        **_steps(sizes),
        **_steps(lengths, {name: _number(name) for name in LENGTHS}),
    }


def samgraph_bf16(arguments: argparse.Namespace) -> Jobs:
    """Ours with products in bf16."""
    given = arguments.model, arguments.threads, "bf16"
    tracks = {name: _our_track(arguments, _number(name), precision="bf16") for name in FEW_TRACKS}
    return {**_late(PARTS, lambda: parts.samgraph_jobs(*given)), **_steps(tracks)}


def torch_eager(arguments: argparse.Namespace) -> Jobs:
    """The reference."""
    whole = images.Torch(arguments)
    tracks = {name: _their_track(arguments, _number(name)) for name in TRACKS}
    return {
        **_late(PARTS, lambda: parts.torch_jobs(arguments.model, arguments.threads)),
        "click": whole.click,
        "everything": whole.everything,
        **_steps(tracks),
    }


def torch_autocast(arguments: argparse.Namespace) -> Jobs:
    """The reference with torch's autocast to bf16."""
    import torch

    def cast(run: Callable[[], object]) -> Callable[[], object]:
        def job() -> object:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return run()

        return job

    late = _late(PARTS, lambda: parts.torch_jobs(arguments.model, arguments.threads))
    tracks = _steps({name: _their_track(arguments, _number(name)) for name in FEW_TRACKS})
    return {name: cast(run) for name, run in {**late, **tracks}.items()}


def torch_compiled(arguments: argparse.Namespace) -> Jobs:
    """The reference under torch.compile; needs a C++ compiler."""
    import torch

    def compiled() -> Jobs:
        jobs = parts.torch_jobs(arguments.model, arguments.threads)
        return {name: torch.compile(run) for name, run in jobs.items()}

    return _late(PARTS, compiled)


def transformers(arguments: argparse.Namespace) -> Jobs:
    """The image encoder of transformers, with its own random weights of the same sizes."""
    import torch
    from transformers import Sam2Config, Sam2Model

    if arguments.model != "sam2.1-tiny":
        raise SystemExit("transformers: only sam2.1-tiny, whose config is its default")
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    model, image = Sam2Model(Sam2Config()).eval(), torch.randn(1, 3, 1024, 1024)
    maps = model.get_image_embeddings(image)
    points, labels = torch.full((1, 1, 1, 2), 500.0), torch.ones(1, 1, 1, dtype=torch.int32)
    return {
        "image_encoder": lambda: model.get_image_embeddings(image),
        "decode": lambda: model(
            image_embeddings=maps, input_points=points, input_labels=labels, multimask_output=True
        ),
    }


def onnxruntime(arguments: argparse.Namespace) -> Jobs:
    """The reference's image encoder as torch exports it, in ONNX Runtime."""
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    path, image = _exported_encoder(arguments)
    session = runtime.InferenceSession(path, options)
    name = session.get_inputs()[0].name
    return {"image_encoder": lambda: session.run(None, {name: image})}


def openvino(arguments: argparse.Namespace) -> Jobs:
    """The same export in OpenVINO, float32."""
    import openvino as runtime

    path, image = _exported_encoder(arguments)
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": arguments.threads}
    compiled = runtime.Core().compile_model(path, "CPU", hints)
    return {"image_encoder": lambda: compiled([image])}


def _exported_encoder(arguments: argparse.Namespace) -> tuple[str, np.ndarray]:
    """The path of the export, made once for all peers that read it, and an image."""
    folder = arguments.exports or Path(tempfile.mkdtemp())
    path, whole = str(folder / "encoder.onnx"), folder / "encoder.done"
    if whole.exists():
        return path, np.random.default_rng(0).standard_normal((1, 3, 1024, 1024), np.float32)
    import onnxscript  # noqa: F401  (the exporter needs it)
    import torch

    from tests.parity.reference import build_reference

    model = build_reference(arguments.model.replace("-", "_"), 7)

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model.image_encoder

        def forward(self, image: Any) -> Any:
            return self.encoder(image)["backbone_fpn"]

    image = torch.randn(1, 3, 1024, 1024)
    program = torch.onnx.export(Encoder().eval(), (image,), dynamo=True, verbose=False)
    if program is None:
        raise SystemExit("torch exported nothing")
    program.optimize()
    program.save(path)
    whole.touch()
    return path, image.numpy()


def _number(job: str) -> int:
    return int(job.partition("_")[2])


def _late(names: tuple[str, ...], make: Callable[[], Jobs]) -> Jobs:
    """Jobs that are made when one of them is first asked for."""
    made = cache(make)
    return {name: lambda name=name: made()[name]() for name in names}


@cache
def _our_core(model: str, threads: int, precision: str, size: int) -> Any:
    from samgraph.models.loading import load_model
    from samgraph.models.sam2.config import CONFIGS
    from samgraph.models.sam2.graphs import weight_shapes
    from samgraph.runtime import CompileOptions
    from tests.weights import tensor

    config = CONFIGS[model]
    weights = {key: tensor(key, shape, video.SEED) for key, shape in weight_shapes(config).items()}
    options = CompileOptions(threads=threads, precision=precision, cache=False)
    return load_model(weights, image_size=size, options=options)


def _our_track(
    arguments: argparse.Namespace, objects: int, precision: str = "fp32", size: int = 1024
) -> Iterator[Any]:
    from samgraph.predict.video.video import open_video

    core = _our_core(arguments.model, arguments.threads, precision, size)
    clip = open_video(core, video.drawn_frames(), cache_mb=0)
    for number in range(objects):
        clip.add(frame=0, object=number + 1, points=[(30 + 4 * number, 50)])
    for result in clip.track():
        result.masks  # noqa: B018  # made when they are asked for
        yield result


def _their_track(arguments: argparse.Namespace, objects: int) -> Iterator[Any]:
    import torch

    from tests.golden import scenes
    from tests.golden.video import _quietly
    from tests.parity.reference import build_reference

    model = build_reference(arguments.model.replace("-", "_"), video.SEED)
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        scenes.write_frames(Path(folder), 64)
        state = _quietly(lambda: model.init_state(folder))
    for number in range(objects):
        point = [(30 + 4 * number, 50)]
        model.add_new_points_or_box(state, 0, number + 1, points=point, labels=[1])
    for _, _, masks in model.propagate_in_video(state):
        yield masks > 0


def _steps(runs: dict[str, Iterator[Any]], before: dict[str, int] | None = None) -> Jobs:
    """A tracked frame per run, once the bank is full, or so many frames have passed."""
    warm: set[str] = set()

    def step(name: str) -> None:
        if name not in warm:
            warm.add(name)
            for _ in range((before or {}).get(name, video.WARM)):
                next(runs[name])
        next(runs[name])

    return {name: lambda name=name: step(name) for name in runs}


THEIR_JOBS = ("track_1", *PARTS, "click", "everything", "track_4", "track_16")
WHOLE = (*THEIR_JOBS, *SIZES, *LENGTHS)  # track_1 first: its peak memory is read after it
PEERS: dict[str, PeerKind] = {
    "samgraph fp32": PeerKind(("samgraph", "openvino", "numpy"), WHOLE, samgraph_fp32),
    "samgraph bf16": PeerKind(
        ("samgraph", "openvino", "numpy"), ("track_1", *PARTS, "track_4"), samgraph_bf16
    ),
    "torch eager": PeerKind(("torch", "sam2", "numpy"), THEIR_JOBS, torch_eager),
    "torch bf16": PeerKind(
        ("torch", "sam2", "numpy"), ("track_1", *PARTS, "track_4"), torch_autocast
    ),
    "torch.compile": PeerKind(("torch", "sam2", "numpy"), PARTS, torch_compiled),
    "transformers": PeerKind(
        ("transformers", "torch", "numpy"), ("image_encoder", "decode"), transformers
    ),
    "ONNX Runtime": PeerKind(("onnxruntime", "numpy"), ("image_encoder",), onnxruntime),
    "OpenVINO": PeerKind(("openvino", "numpy"), ("image_encoder",), openvino),
}
# What --quick leaves out: sixteen objects take the reference a minute per frame.
NOT_QUICK = {("torch eager", "track_16"), ("torch bf16", "track_4")}

if __name__ == "__main__":
    main()
