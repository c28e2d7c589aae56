"""A tracked frame of the sister models against SAM 2.1 tiny, and against torch.

    python benchmarks/families.py [--models sam2.1-tiny,edgetam] [--rounds 7] [--device cpu]

A frame is what tracking one object takes with a full memory (seven frames, sixteen pointers): image
encoder, memory attention, decoder, memory encoder, one after another. Each model is a process of
its own with random weights; rounds are interleaved. `NAME:torch` is the same model evaluated by
torch op by op, no pass run on its graphs: what a plain implementation in torch does.
`NAME:pooled-memory`, or another approximation, is the model with it.
`edgetam:transformers` is the model of that name in transformers (with timm and torchvision), a
whole frame only. `--kind cpu --threads 1` compares processor time, on a machine that others use.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Peer, compare, serve

Jobs = dict[str, Callable[[], object]]
GRAPHS = ("image_encoder", "memory_attention", "decode", "memory_encoder")  # as a frame needs them
MODELS = "sam2.1-tiny,edgetam,edgetam:torch,efficienttam-s,efficienttam-s-2,efficienttam-ti-512x512"


def main() -> None:
    """Start the peers, or be one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kind", choices=["wall", "cpu"], default="wall", help="cpu: processor")
    parser.add_argument("--peer", help="be the peer of this name")
    arguments = parser.parse_args()
    if arguments.peer:
        serve(frame_jobs(arguments.peer, arguments.threads, arguments.device))
        return
    names = arguments.models.split(",")
    options = ["--threads", str(arguments.threads), "--device", arguments.device]
    command = [sys.executable, str(Path(__file__)), *options]
    peers = [Peer(name, [*command, "--peer", name]) for name in names]
    times = compare(peers, [*GRAPHS, "frame"], arguments.rounds, arguments.kind)
    for peer in peers:
        peer.close()
    where = f"{arguments.device}, {arguments.threads} threads"
    print(f"{where}, {arguments.rounds} rounds, {arguments.kind} ms")
    print(f"{'model':26}" + "".join(f"{job:>18}" for job in times) + f"{'of the first':>14}")
    for name in names:
        row = "".join(f"{_shown(times[job][name]):>18}" for job in times)
        share = times["frame"][names[0]] / times["frame"][name]
        print(f"{name:26}{row}{share:13.2f}x")


def _shown(seconds: float) -> str:
    """Milliseconds; nothing for a job that a peer does not have."""
    return f"{1e3 * seconds:.1f}" if seconds > 1e-4 else "-"


def transformers_jobs(threads: int) -> Jobs:
    """EdgeTAM of transformers, eager: a new frame of a stream whose memory is full."""
    import torch
    import transformers
    from transformers.models.edgetam_video import modeling_edgetam_video as module

    torch.set_num_threads(threads)
    backbone = transformers.TimmWrapperConfig(
        architecture="repvit_m1.dist_in1k",
        model_args={"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]},
    )
    vision = transformers.EdgeTamVisionConfig(backbone_config=backbone)
    model = module.EdgeTamVideoModel(transformers.EdgeTamVideoConfig(vision_config=vision)).eval()
    session = module.EdgeTamVideoInferenceSession(
        video_height=540, video_width=960, dtype=torch.float32
    )
    noise = torch.Generator().manual_seed(0)

    def run() -> object:
        picture = torch.randn(1, 3, 1024, 1024, generator=noise)
        with torch.inference_mode():
            return model(inference_session=session, frame=picture)

    click = {"point_coords": torch.tensor([[[[500.0, 400.0]]]])}
    click["point_labels"] = torch.tensor([[[1]]], dtype=torch.int32)
    session.add_point_inputs(session.obj_id_to_idx(1), 0, click)
    session.obj_with_new_inputs.append(1)
    for _ in range(17):
        run()
    return {**dict.fromkeys(GRAPHS, lambda: None), "frame": run}


def frame_jobs(name: str, threads: int, device: str) -> Jobs:
    """Each graph with its typical inputs, and `frame`: all of them in turn."""
    from samgraph.models.loading import find_config, load_model
    from samgraph.runtime import APPROXIMATIONS, CompileOptions
    from tests.weights import tensor

    model_name, _, kind = name.partition(":")
    if kind == "transformers":
        return transformers_jobs(threads)
    family, config = find_config(model_name)
    shapes = family.weight_shapes(config.smallest())
    weights = {key: tensor(key, shape, 7) for key, shape in shapes.items()}
    plain = {"engine": "torch", "profile": "plain", "precision": "fp32"} if kind == "torch" else {}
    if kind in APPROXIMATIONS:
        plain = {"approximation": kind}
    options = CompileOptions(threads=threads, cache=False, **plain)  # type: ignore[arg-type]
    model: Any = load_model(weights, config=config, device=device, options=options)
    jobs = {graph: _runner(model, _own(model, graph)) for graph in GRAPHS}
    jobs["frame"] = lambda: [jobs[graph]() for graph in GRAPHS]
    return jobs


def _own(model: Any, graph: str) -> str:
    """Its name in the model: variants with a pooled memory have their own attention."""
    return next(str(name) for name in model.frame_graphs if name.startswith(graph))


def _runner(model: Any, graph: str) -> Callable[[], object]:
    """One run of a graph; on a GPU, until its results are there."""
    from samgraph.evaluate.speed import typical_inputs, typical_sizes

    inputs = typical_inputs(model.graph(graph), typical_sizes(model))
    if "slots" in inputs:
        inputs["slots"] = np.arange(inputs["slots"].size).reshape(inputs["slots"].shape)
    is_away = model.buffers.images is not None
    given = {name: model.buffers.upload(x) if is_away else x for name, x in inputs.items()}

    def run() -> object:
        found = model.run(graph, **given)
        return model.buffers.download(next(iter(found.values()))) if is_away else found

    return run


if __name__ == "__main__":
    main()
