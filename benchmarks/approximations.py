"""What approximations cost in quality and gain in time, on clips laid out as DAVIS is.

    python benchmarks/approximations.py FOLDER [--model samgraph-nano] [--out FILE]

Objects are given by their first mask. J and F against the annotations; IoU with the masks that the
exact model finds, over all tracked frames, on average and for the worst object; processor time per
frame of tracking. The videos are tracked in turn, exactly and with each approximation, so that
other load affects all.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from samgraph.evaluate.davis import (
    mean_figures,
    object_labels,
    region_similarity,
    sequence_figures,
)
from samgraph.evaluate.sequences import AnnotatedVideo, find_sequences
from samgraph.media.image.reading import read_label_image
from samgraph.media.video.frames import image_files
from samgraph.predict.model import Model, load
from samgraph.runtime import APPROXIMATIONS

EXACT = "exact"
Masks = dict[int, list[np.ndarray]]


def main() -> None:
    """Track every clip with every approximation, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="samgraph-nano")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a file for the figures as JSON")
    arguments = parser.parse_args()
    names = [EXACT, *APPROXIMATIONS]
    models = {
        name: load(
            arguments.model,
            threads=arguments.threads,
            approximation=None if name == EXACT else name,
        )
        for name in names
    }
    figures: dict[str, list[Any]] = {name: [] for name in names}
    ious: dict[str, list[float]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for sequence in find_sequences(arguments.folder):
        exact: Masks = {}
        for name, model in models.items():
            masks, spent = track(model, sequence)
            exact = exact or masks
            figures[name] += compared(sequence, masks)
            ious[name] += [agreement(exact[label], masks[label]) for label in masks]
            seconds[name].append(spent)
        print(f"{sequence.name} done", flush=True)
    rows = {}
    for name in names:
        mean, spent = mean_figures(figures[name]), float(np.median(seconds[name]))
        rows[name] = {
            "J": mean.j, "F": mean.f, "iou": float(np.mean(ious[name])),
            "worst_iou": min(ious[name]), "seconds": spent,
            "faster": float(np.median(seconds[EXACT])) / spent,
        }  # fmt: skip
    print(f"{'':15} {'J':>5} {'F':>5} {'IoU':>6} {'worst':>6} {'ms':>6} {'faster':>7}")
    for name, row in rows.items():
        print(
            f"{name:15} {100 * row['J']:5.1f} {100 * row['F']:5.1f} {row['iou']:6.3f} "
            f"{row['worst_iou']:6.3f} {1e3 * row['seconds']:6.0f} {row['faster']:6.2f}x"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def track(model: Model, sequence: AnnotatedVideo) -> tuple[Masks, float]:
    """The masks of every object from its first annotation on, and processor seconds per frame."""
    truth = read_label_image(sequence.annotations[0])
    labels, first = object_labels(truth), indices(sequence)[0]
    with model.video(sequence.frames) as video:
        for label in labels:
            video.add(frame=first, object=label, mask=truth == label)
        start, frames = time.process_time(), 0
        masks: Masks = {label: [] for label in labels}
        for frame in video.track():
            frames += 1
            for label in labels if frame.index >= first else ():
                masks[label].append(frame.mask(label))
        return masks, (time.process_time() - start) / frames


def indices(sequence: AnnotatedVideo) -> list[int]:
    """The frame of each annotation."""
    stems = [path.stem for path in image_files(sequence.frames)]
    return [stems.index(path.stem) for path in sequence.annotations]


def compared(sequence: AnnotatedVideo, masks: Masks) -> list[Any]:
    """J and F of each object on the annotated frames."""
    truth, frames = [read_label_image(path) for path in sequence.annotations], indices(sequence)
    found = {
        label: [of_label[index - frames[0]] for index in frames]
        for label, of_label in masks.items()
    }
    return list(sequence_figures(truth, found).values())


def agreement(exact: list[np.ndarray], found: list[np.ndarray]) -> float:
    """The mean IoU of an object's masks; 1 where both are empty."""
    pairs = zip(exact[1:], found[1:], strict=True)
    return float(np.mean([region_similarity(one, other) for one, other in pairs]))


if __name__ == "__main__":
    main()
