"""Memory policies on drawn clips: mean IoU with the truth, and processor time per frame.

    python benchmarks/policies.py [--model NAME] [--image-size 512] [--clips crossing,...]

Every clip is one hard thing: a look-alike that crosses, an occlusion, a look-alike that stays when
the object is away, and nothing hard at all. Objects are drawn on noise, in colours of their own.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import samgraph
from samgraph.predict.video.policies.table import POLICIES

Frames = list[NDArray[np.uint8]]
Masks = list[NDArray[np.bool_]]
HEIGHT, WIDTH = 180, 240
RED, YELLOW, BLUE = (210, 60, 50), (240, 220, 60), (60, 80, 200)


def main() -> None:
    """Track every clip with every policy, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="samgraph-nano")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--frames", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clips", default=",".join(CLIPS))
    parser.add_argument("--policies", default=",".join(POLICIES))
    given = parser.parse_args()
    model = samgraph.load(given.model, image_size=given.image_size, threads=given.threads)
    names = given.policies.split(",")
    print(f"{model}: {given.frames} frames; mean IoU, processor ms per frame")
    print("| clip | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for clip in given.clips.split(","):
        frames, truth = CLIPS[clip](given.frames)
        cells = []
        for name in names:
            mean, seconds = tracked(model, frames, truth, name)
            cells.append(f"{mean:.3f}, {1e3 * seconds:.0f} ms")
        print(f"| {clip} | " + " | ".join(cells) + " |", flush=True)


def tracked(
    model: samgraph.Model, frames: Frames, truth: Masks, policy: str
) -> tuple[float, float]:
    """Mean IoU after the first frame, and seconds of processor time per frame."""
    video = model.video(frames, policy=policy)
    video.add(frame=0, object=1, mask=truth[0])
    results = video.track()
    next(results)
    ious, start = [], time.process_time()
    for result in results:
        found, wanted = result.mask(1), truth[result.index]
        union = np.count_nonzero(found | wanted)
        ious.append(np.count_nonzero(found & wanted) / union if union else 1.0)
    return float(np.mean(ious)), (time.process_time() - start) / len(ious)


def crossing(count: int) -> tuple[Frames, Masks]:
    """A disc passes another that looks the same and touches it."""
    return _drawn(count, lambda t: [(40 + 160 * t, 90, 18, RED), (200 - 160 * t, 96, 18, RED)])


def passing(count: int) -> tuple[Frames, Masks]:
    """A disc passes another that looks the same, at a distance."""
    return _drawn(count, lambda t: [(40 + 160 * t, 60, 18, RED), (200 - 160 * t, 120, 18, RED)])


def occlusion(count: int) -> tuple[Frames, Masks]:
    """A disc is away for a third of the clip, and moves on meanwhile."""
    return _drawn(
        count, lambda t: [(30 + 180 * t, 90, 18, RED)], hidden=lambda t: 1 / 3 <= t < 2 / 3
    )


def substitute(count: int) -> tuple[Frames, Masks]:
    """A disc is away for a third of the clip, and a look-alike is not."""
    return _drawn(
        count,
        lambda t: [(60 + 30 * t, 60, 18, RED), (170, 120 - 20 * t, 17, RED)],
        hidden=lambda t: 1 / 3 <= t < 2 / 3,
    )


def plain(count: int) -> tuple[Frames, Masks]:
    """A disc and another of a different colour, always visible."""
    return _drawn(count, lambda t: [(50 + 120 * t, 70, 20, BLUE), (120, 130, 16, YELLOW)])


def _drawn(
    count: int,
    discs: Callable[[float], list[Any]],
    hidden: Callable[[float], bool] = lambda _: False,
) -> tuple[Frames, Masks]:
    """Frames of discs at times from 0 to 1, of which the first is the object."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(0).normal(0, 6, (HEIGHT, WIDTH, 1))
    ground = (np.array((70, 110, 80)) + noise).clip(0, 255).astype(np.uint8)
    frames, truth = [], []
    for index in range(count):
        t = index / (count - 1)
        frame, masks = ground.copy(), []
        for place, (x, y, radius, colour) in enumerate(discs(t)):
            mask = (columns - x) ** 2 + (rows - y) ** 2 <= radius**2
            if place == 0 and hidden(t):
                mask = np.zeros_like(mask)
            frame[mask] = colour
            masks.append(mask)
        frames.append(frame)
        truth.append(masks[0] & ~np.logical_or.reduce([*masks[1:], np.zeros_like(masks[0])]))
    return frames, truth


CLIPS = {clip.__name__: clip for clip in (crossing, passing, occlusion, substitute, plain)}

if __name__ == "__main__":
    main()
