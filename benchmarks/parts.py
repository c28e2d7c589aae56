"""The four graphs of SAM 2 against the reference in torch: time for time, memory for memory.

    python benchmarks/parts.py [--model sam2.1-tiny] [--rounds 7] [--jobs decode,memory_encoder]

Both on two threads, float32, 1024 pixels, the same random weights; memory attention with a full
bank (seven frames and 64 pointer tokens). A round is what a frame of a video takes: each graph
once, in the order of tracking. Needs torch and the `sam2` package for the peer.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Peer, compare, serve

Jobs = dict[str, Callable[[], object]]
JOBS = ("image_encoder", "memory_attention", "decode", "memory_encoder")  # as a frame needs them
FRAMES = (1, 3, 7)  # remembered


def main() -> None:
    """Start the peers, or be one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--kind", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--peer", choices=("samgraph", "torch"))
    arguments = parser.parse_args()
    jobs = arguments.jobs.split(",")
    if arguments.peer == "samgraph":
        serve(samgraph_jobs(arguments.model, arguments.threads))
    elif arguments.peer == "torch":
        serve(torch_jobs(arguments.model, arguments.threads))
    else:
        drive(arguments, jobs)


def drive(arguments: argparse.Namespace, jobs: list[str]) -> None:
    """Time the jobs, then each peer's memory in fresh processes that run one job."""
    peers = [_start(arguments, name) for name in ("samgraph", "torch")]
    times = compare(peers, jobs, arguments.rounds, arguments.kind)
    settings = f"{arguments.threads} threads, {arguments.kind}, {arguments.rounds} rounds"
    print(f"{arguments.model}, {settings}")
    print(
        f"{'graph':18} {'samgraph':>10} {'torch':>10} {'faster':>7} {'peak MB':>8} {'torch MB':>9}"
    )
    for peer in peers:
        peer.close()
    for job in jobs:
        peaks = {}
        for name in ("samgraph", "torch"):
            peer = _start(arguments, name)
            peer.ask(job)
            peaks[name] = peer.ask("memory")["peak"]
            peer.close()
        ours, theirs = times[job]["samgraph"], times[job]["torch"]
        print(
            f"{job:18} {ours * 1e3:8.1f}ms {theirs * 1e3:8.1f}ms {theirs / ours:6.2f}x "
            f"{peaks['samgraph']:8.0f} {peaks['torch']:9.0f}"
        )


def _start(arguments: argparse.Namespace, name: str) -> Peer:
    python = arguments.torch_python if name == "torch" else sys.executable
    options = ["--model", arguments.model, "--threads", str(arguments.threads)]
    return Peer(name, [python, str(Path(__file__)), "--peer", name, *options])


def samgraph_jobs(model_name: str, threads: int, precision: str = "fp32") -> Jobs:
    """Our graphs, compiled when first asked for; memory attention for 1, 3 and 7 frames too."""
    from samgraph.models.loading import load_model
    from samgraph.models.sam2.config import CONFIGS
    from samgraph.models.sam2.graphs import weight_shapes
    from samgraph.runtime import CompileOptions
    from tests.weights import tensor

    config = CONFIGS[model_name]
    weights = {key: tensor(key, shape, 7) for key, shape in weight_shapes(config).items()}
    options = CompileOptions(threads=threads, cache=False, precision=precision)
    model = load_model(weights, options=options)
    inputs: dict[str, dict[str, Any]] = {
        "image_encoder": {"image": _random(1, 3, 1024, 1024)},
        "decode": {
            "embedding": _map(256, 64),
            "fine_0": _map(32, 256),
            "fine_1": _map(64, 128),
            "points": np.full((1, 1, 2), 500, np.float32),
            "labels": np.ones((1, 1), np.int64),
            "mask": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask": np.zeros(1, bool),
            "no_memory": np.ones(1, bool),
            "multimask": np.ones(1, bool),
        },
        "memory_encoder": {
            "embedding": _map(256, 64),
            "mask": _random(1, 1, 256, 256),
            "object_score": np.ones((1, 1), np.float32),
            "binary": np.zeros(1, bool),
        },
    }
    jobs: Jobs = {job: lambda job=job: model.run(job, **inputs[job]) for job in inputs}
    memory = {
        "embedding": _map(256, 64),
        "pointers": _random(1, 16, 256),
        "pointer_times": np.linspace(0, 1, 16, dtype=np.float32)[None],
    }

    def attend(frames: int) -> Callable[[], object]:
        pages, slots = _random(1, frames, 4096, 64), np.arange(frames)[None]
        return lambda: model.run("memory_attention", memory=pages, slots=slots, **memory)

    jobs |= {f"memory_attention_{frames}": attend(frames) for frames in FRAMES}
    return jobs | {"memory_attention": jobs["memory_attention_7"]}


def torch_jobs(model_name: str, threads: int) -> Jobs:
    """The same parts of the reference."""
    import torch

    from tests.parity.reference import build_reference

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model = build_reference(model_name.replace("-", "_"), 7)
    position = torch.randn(4096, 1, 256)
    current = torch.randn(4096, 1, 256)
    image, embedding = torch.randn(1, 3, 1024, 1024), torch.randn(1, 256, 64, 64)
    fine = [torch.randn(1, 32, 256, 256), torch.randn(1, 64, 128, 128)]
    points = (torch.full((1, 1, 2), 500.0), torch.ones(1, 1, dtype=torch.int32))
    low, score = torch.randn(1, 1, 256, 256), torch.ones(1, 1)

    def encode_memory() -> object:
        """From the low-resolution mask, as our graph does; the reference enlarges it before."""
        mask = torch.nn.functional.interpolate(low, (1024, 1024), mode="bilinear")
        return model._encode_new_memory([flat], [(64, 64)], mask, score, False)

    def attend(frames: int) -> Callable[[], object]:
        memory, at = (torch.randn(4096 * frames + 64, 1, 64) for _ in range(2))
        return lambda: model.memory_attention(current, memory, position, at, 64)

    flat = embedding.flatten(2).permute(2, 0, 1)
    jobs: Jobs = {
        "image_encoder": lambda: model.forward_image(image),
        "decode": lambda: model.sam_mask_decoder(
            embedding,
            model.sam_prompt_encoder.get_dense_pe(),
            *model.sam_prompt_encoder(points, None, None),
            multimask_output=True,
            repeat_image=False,
            high_res_features=fine,
        ),
        "memory_encoder": encode_memory,
    }
    jobs |= {f"memory_attention_{frames}": attend(frames) for frames in FRAMES}
    return jobs | {"memory_attention": jobs["memory_attention_7"]}


def _map(channels: int, side: int) -> np.ndarray:
    """A map [1, C, H, W] as the image encoder leaves it: with its channels last in memory."""
    return _random(1, side, side, channels).transpose(0, 3, 1, 2)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


if __name__ == "__main__":
    main()
