"""Tracking: speed against the reference in torch, cost of more objects, memory over a long video.

    python benchmarks/video.py speed [--model sam2.1-tiny] [--rounds 5] [--torch-python PYTHON]
    python benchmarks/video.py objects [--many 4] [--rounds 5]
    python benchmarks/video.py memory [--frames 10000] [--objects 1] [--size 256]

`speed` and `objects` time single frames with a full bank (seven masks), at 1024 pixels, in float32
and on two threads, peers in turn; the same random weights and the same drawn video. `memory` runs
the small test model through a long drawn video and prints the resident memory as it goes.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Peer, compare, serve

WARM = 8
SEED = 7
MEGABYTE = 1 << 20


def main() -> None:
    """Start what was asked for, or be a peer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "objects", "memory"))
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--many", type=int, default=4)
    parser.add_argument("--kind", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=1)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--peer", choices=("samgraph", "torch"))
    arguments = parser.parse_args()
    if arguments.peer == "samgraph":
        serve_samgraph(arguments)
    elif arguments.peer == "torch":
        serve_torch(arguments)
    elif arguments.what == "memory":
        long_video(arguments)
    else:
        drive(arguments)


def drive(arguments: argparse.Namespace) -> None:
    """Time single frames, round after round."""
    is_speed = arguments.what == "speed"
    names = ("samgraph", "torch") if is_speed else ("samgraph",)
    jobs = ["one"] if is_speed else ["one", "many"]
    peers = [_start(arguments, name) for name in names]
    times = compare(peers, jobs, arguments.rounds, arguments.kind)
    print(f"{arguments.model}, {arguments.threads} threads, {arguments.kind}, seconds a frame")
    for job, row in times.items():
        print(f"{job:6} " + "  ".join(f"{name} {seconds:.3f}" for name, seconds in row.items()))
    if is_speed:
        print(f"samgraph is {times['one']['torch'] / times['one']['samgraph']:.2f} times as fast")
    else:
        cost = times["many"]["samgraph"] / times["one"]["samgraph"]
        print(f"{arguments.many} objects cost {cost:.2f} times one")
    for peer in peers:
        print(f"{peer.name}: peak {peer.ask('memory')['peak']:.0f} MB")
        peer.close()


def _start(arguments: argparse.Namespace, name: str) -> Peer:
    python = arguments.torch_python if name == "torch" else sys.executable
    options = ["--model", arguments.model, "--threads", str(arguments.threads)]
    options += ["--many", str(arguments.many)]
    return Peer(name, [python, str(Path(__file__)), arguments.what, "--peer", name, *options])


def drawn_frames() -> Iterator[np.ndarray]:
    """The little drawn video, over and over."""
    from tests.golden import scenes

    yield from itertools.cycle(scenes.frames(10))


def serve_samgraph(arguments: argparse.Namespace) -> None:
    """One frame an answer, with one object or with many; compiled and warm when first asked."""
    from samgraph.predict.video import open_video
    from samgraph.runtime import CompileOptions
    from samgraph.sam2.config import CONFIGS
    from samgraph.sam2.graphs import weight_shapes
    from samgraph.sam2.loading import load_model
    from tests.weights import tensor

    config = CONFIGS[arguments.model]
    weights = {key: tensor(key, shape, SEED) for key, shape in weight_shapes(config).items()}
    core = load_model(weights, options=CompileOptions(threads=arguments.threads))

    def run(objects: int) -> Iterator[Any]:
        video = open_video(core, drawn_frames(), cache_mb=0)
        for name in range(objects):
            video.add(frame=0, object=name + 1, points=[(30 + 10 * name, 50)])
        for result in video.track():
            result.masks  # noqa: B018  # made when they are asked for
            yield result

    _serve_runs({"one": run(1), "many": run(arguments.many)})


def serve_torch(arguments: argparse.Namespace) -> None:
    """The same in the reference."""
    import tempfile

    import torch

    from tests.golden import scenes
    from tests.golden.video import _quietly, _Watched
    from tests.parity.reference import build_reference

    model = build_reference(arguments.model.replace("-", "_"), SEED)
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    _Watched(model, keep_float32=False)  # feeds memory as float32: it raises otherwise

    def run() -> Iterator[Any]:
        with tempfile.TemporaryDirectory() as folder:
            scenes.write_frames(Path(folder), WARM + 24)
            state = _quietly(lambda: model.init_state(folder))
        model.add_new_points_or_box(state, 0, 1, points=[(30, 50)], labels=[1])
        for _, _, masks in model.propagate_in_video(state):
            yield masks > 0

    _serve_runs({"one": run()})


def _serve_runs(runs: dict[str, Iterator[Any]]) -> None:
    warm: set[str] = set()

    def step(name: str) -> None:
        if name not in warm:
            warm.add(name)
            for _ in range(WARM):
                next(runs[name])
        next(runs[name])

    serve({name: lambda name=name: step(name) for name in runs})


def long_video(arguments: argparse.Namespace) -> None:
    """Resident memory at every hundredth frame, and how much was added after frame 500."""
    from samgraph.predict.video import open_video
    from samgraph.runtime import CompileOptions
    from samgraph.sam2.loading import load_model
    from tests.sam2.bench import config_of, known_weights

    config = config_of({"config": "test"})
    core = load_model(
        known_weights(config, 100),
        config=config.at_size(arguments.size),
        options=CompileOptions(threads=arguments.threads),
    )
    video = open_video(core, itertools.islice(drawn_frames(), arguments.frames))
    for name in range(arguments.objects):
        video.add(frame=0, object=name + 1, points=[(30 + 10 * name, 50)])
    started, marks = time.perf_counter(), {}
    for result in video.track():
        if result.index % 500 == 0 or result.index == arguments.frames - 1:
            marks[result.index] = resident()
            rate = (result.index + 1) / (time.perf_counter() - started)
            print(
                f"frame {result.index}: {marks[result.index]:.0f} MB, {rate:.1f} a second",
                flush=True,
            )
    base = marks.get(500, marks[0])
    growth = marks[max(marks)] - base
    print(
        f"{arguments.objects} objects, {arguments.frames} frames: {growth:+.1f} MB after frame 500"
    )
    sys.exit(0 if growth <= 50 else 1)


def resident() -> float:
    """Megabytes this process has in memory now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


if __name__ == "__main__":
    main()
