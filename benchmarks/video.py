"""Tracking: speed against the reference in torch, cost of more objects, memory over a long video.

    python benchmarks/video.py speed [--model sam2.1-tiny] [--rounds 5] [--torch-python PYTHON]
    python benchmarks/video.py objects [--many 4] [--rounds 5]
    python benchmarks/video.py overlap [--rounds 5]
    python benchmarks/video.py memory [--with video|stream] [--objects 1] [--size 128] [--stores MB]

`speed` and `objects` time single frames with a full bank (seven masks, sixteen pointers), at 1024
pixels, in float32 and on two threads, peers in turn; the same random weights and the same drawn
video. `overlap` tracks through a video file of 1920 x 1080 pixels, and compares how long a frame
takes to decode and prepare with how long tracking waits for it. `memory` runs the small test model
through a long drawn video and prints the resident memory as it goes; it fails where more than
50 MB are added after frame 500. `--stores` sets the size of each of a video's three stores (encoded
frames, results, older memories), which at small sizes are not full by frame 500 otherwise.
"""

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Peer, compare, serve

WARM = 16  # frames until the bank is full: six masks and fifteen pointers beside the prompt's
SEED = 7
MEGABYTE = 1 << 20
MOST_GROWTH_MB = 50
FULL_HD = (1080, 1920)


def main() -> None:
    """Start what was asked for, or be a peer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "objects", "overlap", "memory"))
    parser.add_argument("--model", default="sam2.1-tiny")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--many", type=int, default=4)
    parser.add_argument("--kind", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--with", dest="way", default="video", choices=("video", "stream"))
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=1)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--stores", type=float, metavar="MB")
    parser.add_argument("--peer", choices=("samgraph", "torch"))
    arguments = parser.parse_args()
    if arguments.peer == "samgraph":
        serve_samgraph(arguments)
    elif arguments.peer == "torch":
        serve_torch(arguments)
    elif arguments.what == "memory":
        long_video(arguments)
    elif arguments.what == "overlap":
        overlap(arguments)
    else:
        drive(arguments)


def drive(arguments: argparse.Namespace) -> None:
    """Time single frames, round after round."""
    is_speed = arguments.what == "speed"
    names = ("samgraph", "torch") if is_speed else ("samgraph",)
    jobs = ["one"] if is_speed else ["one", "many"]
    peers = [start(arguments, name) for name in names]
    times = compare(peers, jobs, arguments.rounds, arguments.kind)
    print(f"{arguments.model}, {arguments.threads} threads, {arguments.kind}, seconds per frame")
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


def start(arguments: argparse.Namespace, name: str) -> Peer:
    """A peer, in a process of its own."""
    python = arguments.torch_python if name == "torch" else sys.executable
    options = ["--model", arguments.model, "--threads", str(arguments.threads)]
    options += ["--many", str(arguments.many), "--rounds", str(arguments.rounds)]
    return Peer(name, [python, str(Path(__file__)), arguments.what, "--peer", name, *options])


def drawn_frames() -> Iterator[np.ndarray]:
    """The little drawn video, over and over."""
    from tests.golden import scenes

    yield from itertools.cycle(scenes.frames(10))


def known_model(name: str, threads: int) -> Any:
    """A model of full size with random weights."""
    from samgraph.models.loading import load_model
    from samgraph.models.sam2.config import CONFIGS
    from samgraph.models.sam2.graphs import weight_shapes
    from samgraph.runtime import CompileOptions
    from tests.weights import tensor

    config = CONFIGS[name]
    weights = {key: tensor(key, shape, SEED) for key, shape in weight_shapes(config).items()}
    return load_model(weights, options=CompileOptions(threads=threads))


def serve_samgraph(arguments: argparse.Namespace) -> None:
    """One frame an answer, with one object or with many; compiled and warm when first asked."""
    from samgraph.predict.video.video import open_video

    core = known_model(arguments.model, arguments.threads)

    def run(objects: int) -> Iterator[Any]:
        video = open_video(core, drawn_frames(), cache_mb=0)
        for name in range(objects):
            video.add(frame=0, object=name + 1, points=[(30 + 10 * name, 50)])
        for result in video.track():
            result.masks  # noqa: B018  # made when they are asked for
            yield result

    _serve_runs({"one": run(1), "many": run(arguments.many)})


def serve_torch(arguments: argparse.Namespace) -> None:
    """The same in the reference, whose frames are all decoded and resized beforehand."""
    import torch

    from tests.golden import scenes
    from tests.golden.video import _quietly
    from tests.parity.reference import build_reference

    model = build_reference(arguments.model.replace("-", "_"), SEED)
    torch.set_num_threads(arguments.threads)

    def run() -> Iterator[Any]:
        with tempfile.TemporaryDirectory() as folder:
            scenes.write_frames(Path(folder), WARM + arguments.rounds + 2)
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


def overlap(arguments: argparse.Namespace) -> None:
    """How long a frame takes to decode and prepare, and how long tracking waits for it."""
    from samgraph.media.video.frames import open_frames
    from samgraph.predict.video.feed import prepare
    from samgraph.predict.video.video import open_video

    core = known_model(arguments.model, arguments.threads)
    count = arguments.rounds + 2
    with tempfile.TemporaryDirectory() as folder:
        path = _full_hd(Path(folder) / "clip.mp4", count)
        alone = []
        with open_frames(path) as source:
            for index in range(count):
                began = time.perf_counter()
                prepare(source.frame(index), core.preprocessing)
                alone.append(time.perf_counter() - began)
        with open_video(core, path, cache_mb=0) as video, _waiting() as waits:
            video.add(frame=0, object=1, points=[(360, 450)])
            began = time.perf_counter()
            for _ in video.track():
                pass
            frame = (time.perf_counter() - began) / count
    # The first two frames: nothing can be ready yet, and the reader still fills its line.
    wait, work = statistics.median(waits[2:]), statistics.median(alone[2:])
    print(f"{arguments.model}, {arguments.threads} threads, 1920 x 1080: {frame:.3f} s per frame")
    print(f"decoding and preparing takes {work * 1e3:.1f} ms, waited for {wait * 1e3:.1f} ms of it")


class _waiting:  # noqa: N801  # reads as a verb
    """Notes how long each frame is waited for, as a context."""

    def __enter__(self) -> list[float]:
        from samgraph.predict.video.feed import FrameFeed

        self._get, times = FrameFeed.get, []

        def timed(feed: FrameFeed, index: int) -> Any:
            began = time.perf_counter()
            try:
                return self._get(feed, index)
            finally:
                times.append(time.perf_counter() - began)

        FrameFeed.get = timed
        return times

    def __exit__(self, *_: object) -> None:
        from samgraph.predict.video.feed import FrameFeed

        FrameFeed.get = self._get


def _full_hd(path: Path, count: int) -> Path:
    """The drawn video in pixels of nine by twelve, with noise so that there is much to decode."""
    from samgraph.media.video.writer import VideoWriter

    chance = np.random.default_rng(SEED)
    with VideoWriter(path, FULL_HD) as file:
        for picture in itertools.islice(drawn_frames(), count):
            large = picture.repeat(9, axis=0).repeat(12, axis=1)
            noise = chance.integers(0, 24, large.shape, np.uint8)
            file.write(np.minimum(large, 231) + noise)
    return path


def long_video(arguments: argparse.Namespace) -> None:
    """Resident memory at every five hundredth frame, and how much was added after frame 500."""
    started, marks = time.perf_counter(), {}
    last = arguments.frames - 1
    for result in _long_run(arguments):
        result.masks  # noqa: B018  # made when they are asked for
        if result.index % 500 == 0 or result.index == last:
            marks[result.index] = resident()
            rate = (result.index + 1) / (time.perf_counter() - started)
            print(
                f"frame {result.index}: {marks[result.index]:.0f} MB, {rate:.1f} a second",
                flush=True,
            )
    growth = marks[max(marks)] - marks.get(500, marks[0])
    print(
        f"{arguments.way}, {arguments.objects} objects, {arguments.frames} frames:"
        f" {growth:+.1f} MB after frame 500"
    )
    sys.exit(0 if growth <= MOST_GROWTH_MB else 1)


def _long_run(arguments: argparse.Namespace) -> Iterator[Any]:
    """The small test model on the drawn video, with objects that are clicked on its first frame."""
    from samgraph.models.loading import load_model
    from samgraph.predict.video.stream import open_stream
    from samgraph.predict.video.video import open_video
    from samgraph.runtime import CompileOptions

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.models.sam2.bench import config_of, known_weights

    config = config_of({"config": "test"})
    core = load_model(
        known_weights(config, 100),
        config=config.at_size(arguments.size),
        options=CompileOptions(threads=arguments.threads),
    )
    frames = itertools.islice(drawn_frames(), arguments.frames)
    clicks = {name: [(30 + 10 * (name - 1), 50)] for name in range(1, arguments.objects + 1)}
    if arguments.way == "video":
        names = ("cache_mb", "results_mb", "archive_mb")
        stores = {} if arguments.stores is None else dict.fromkeys(names, arguments.stores)
        video = open_video(core, frames, **stores)
        for name, points in clicks.items():
            video.add(frame=0, object=name, points=points)
        yield from video.track()
        return
    stream = open_stream(core)
    for frame in frames:
        result = stream.step(frame)
        if result.index == 0:
            for name, points in clicks.items():
                result = stream.add(object=name, points=points)
        yield result


def resident() -> float:
    """Megabytes this process has in memory now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


if __name__ == "__main__":
    main()
