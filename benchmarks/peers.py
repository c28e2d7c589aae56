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
SLOW = ("everything", "track_16")  # one round is enough


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
    arguments = parser.parse_args()
    arguments.image = None
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
    tracks = {name: _our_track(arguments, int(name.partition("_")[2])) for name in TRACKS}
    return {
        **parts.samgraph_jobs(arguments.model, arguments.threads),
        "click": whole.click,
        "everything": whole.everything,
        **_steps(tracks),
    }


def samgraph_bf16(arguments: argparse.Namespace) -> Jobs:
    """Ours with products in bf16."""
    return parts.samgraph_jobs(arguments.model, arguments.threads, "bf16")


def torch_eager(arguments: argparse.Namespace) -> Jobs:
    """The reference."""
    whole = images.Torch(arguments)
    tracks = {name: _their_track(arguments, int(name.partition("_")[2])) for name in TRACKS}
    return {
        **parts.torch_jobs(arguments.model, arguments.threads),
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

    return {k: cast(v) for k, v in parts.torch_jobs(arguments.model, arguments.threads).items()}


def torch_compiled(arguments: argparse.Namespace) -> Jobs:
    """The reference under torch.compile; needs a C++ compiler."""
    import torch

    jobs = parts.torch_jobs(arguments.model, arguments.threads)
    return {name: torch.compile(run) for name, run in jobs.items()}


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
    path = str(Path(tempfile.mkdtemp()) / "encoder.onnx")
    program = torch.onnx.export(Encoder().eval(), (image,), dynamo=True, verbose=False)
    if program is None:
        raise SystemExit("torch exported nothing")
    program.optimize()
    program.save(path)
    return path, image.numpy()


def _our_track(arguments: argparse.Namespace, objects: int) -> Iterator[Any]:
    from samgraph.predict.video.video import open_video

    core = video.known_model(arguments.model, arguments.threads)
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


def _steps(runs: dict[str, Iterator[Any]]) -> Jobs:
    """A tracked frame per run, once the bank is full."""
    warm: set[str] = set()

    def step(name: str) -> None:
        if name not in warm:
            warm.add(name)
            for _ in range(video.WARM):
                next(runs[name])
        next(runs[name])

    return {name: lambda name=name: step(name) for name in runs}


WHOLE = (*PARTS, "click", "everything", *TRACKS)
PEERS: dict[str, PeerKind] = {
    "samgraph fp32": PeerKind(("openvino", "numpy"), WHOLE, samgraph_fp32),
    "samgraph bf16": PeerKind(("openvino", "numpy"), PARTS, samgraph_bf16),
    "torch eager": PeerKind(("torch", "numpy"), WHOLE, torch_eager),
    "torch bf16": PeerKind(("torch", "numpy"), PARTS, torch_autocast),
    "torch.compile": PeerKind(("torch", "numpy"), PARTS, torch_compiled),
    "transformers": PeerKind(
        ("transformers", "torch", "numpy"), ("image_encoder", "decode"), transformers
    ),
    "ONNX Runtime": PeerKind(("onnxruntime", "numpy"), ("image_encoder",), onnxruntime),
    "OpenVINO": PeerKind(("openvino", "numpy"), ("image_encoder",), openvino),
}

if __name__ == "__main__":
    main()
