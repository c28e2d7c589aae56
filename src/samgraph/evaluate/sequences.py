"""Evaluation of tracking on a data set in the layout of DAVIS.

JPEGImages/[480p/]NAME/00000.jpg ...     frames
Annotations/[480p/]NAME/00000.png ...    label maps, of all or some frames
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import VideoError
from samgraph.evaluate.clicks import first_click
from samgraph.evaluate.davis import (
    Figures,
    box_of,
    copied_figures,
    object_labels,
    sequence_figures,
)
from samgraph.media.image.reading import read_label_image
from samgraph.media.video.frames import image_files
from samgraph.predict.model import Model
from samgraph.predict.video.policies.table import DEFAULT
from samgraph.untrusted.text import shown

FirstPrompt: TypeAlias = Literal["mask", "click", "box"]
LEVELS = ("480p", "Full-Resolution")


@dataclass(frozen=True, slots=True)
class AnnotatedVideo:
    """A sequence of the data set: its folder of frames, and its annotation files."""

    name: str
    frames: Path
    annotations: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class SequenceFigures:
    """The figures of each object of a sequence, and those of copying the first mask."""

    tracked: dict[int, Figures]
    copied: dict[int, Figures]


def find_sequences(folder: Path, names: Sequence[str] = ()) -> list[AnnotatedVideo]:
    """The sequences of a data set, all or those named.

    Raises:
        VideoError: The folder is not laid out as DAVIS is, or a sequence is not complete.
    """
    images, truths = (_level(folder / name) for name in ("JPEGImages", "Annotations"))
    try:
        known = sorted(name for name in os.listdir(truths) if os.path.isdir(truths / name))
    except OSError as error:
        raise VideoError(f"`{shown(str(truths))}` cannot be read", got=error.strerror) from error
    for name in names:
        if name not in known:
            raise VideoError(f"`{folder}` has no sequence `{name}`", expected=", ".join(known[:8]))
    found = []
    for name in names or known:
        annotations = tuple(sorted((truths / name).glob("*.png")))
        if not annotations or not os.path.isdir(images / name):
            raise VideoError(
                f"sequence `{name}` is not complete",
                expected=f"{images.name}/{name} and {truths.name}/{name}/*.png",
            )
        found.append(AnnotatedVideo(name, images / name, annotations))
    return found


def evaluate_sequence(
    model: Model, sequence: AnnotatedVideo, prompt: FirstPrompt, policy: str = DEFAULT
) -> SequenceFigures:
    """Track every object of the first annotation through a sequence and compare.

    Frames without annotation are tracked and not compared. `policy` is the memory policy.
    """
    truth = [read_label_image(path) for path in sequence.annotations]
    labels = object_labels(truth[0])
    if not labels:
        raise VideoError(f"`{sequence.annotations[0]}` has no object")
    annotated = _annotated_frames(sequence)
    with model.video(sequence.frames, policy=policy) as video:
        for label in labels:
            given = _first_prompt(truth[0] == label, prompt)
            video.add(frame=annotated[0], object=label, **given)
        found: dict[int, list[NDArray[np.bool_]]] = {label: [] for label in labels}
        compared = set(annotated)
        for frame in video.track(end=annotated[-1]):
            if frame.index in compared:
                for label in labels:
                    found[label].append(frame.mask(label))
    return SequenceFigures(sequence_figures(truth, found), copied_figures(truth))


def _first_prompt(mask: NDArray[np.bool_], prompt: FirstPrompt) -> dict[str, Any]:
    """The keyword arguments of `Video.add`."""
    if prompt == "mask":
        return {"mask": mask}
    if prompt == "click":
        return {"points": [first_click(mask).point]}
    return {"box": box_of(mask)}


def _annotated_frames(sequence: AnnotatedVideo) -> list[int]:
    """The frame index of each annotation: by name, or in order where there are as many."""
    annotations = sequence.annotations
    indices = {path.stem: index for index, path in enumerate(image_files(sequence.frames))}
    if len(indices) == len(annotations):
        return list(range(len(annotations)))
    missing = [path.name for path in annotations if path.stem not in indices]
    if missing:
        raise VideoError(
            f"`{sequence.frames}` and its annotations do not belong together",
            got=f"{len(indices)} frames, {len(annotations)} annotations, none named `{missing[0]}`",
            expected="an annotation for every frame, or names that are those of frames",
        )
    return [indices[path.stem] for path in annotations]


def _level(folder: Path) -> Path:
    """The folder of a resolution, such as `480p`, where there is one."""
    if not os.path.isdir(folder):
        what = f"`{shown(str(folder))}` does not exist"
        raise VideoError(what, expected="JPEGImages/ and Annotations/")
    return next((folder / level for level in LEVELS if os.path.isdir(folder / level)), folder)
