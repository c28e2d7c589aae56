"""The example of a detector: its boxes become objects whose ids last."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from samgraph.predict.model import Model
from tests.predict.colour_model import ColourModel

SOURCE = Path(__file__).parents[2] / "examples" / "detector" / "track_boxes.py"


def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("track_boxes", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_toy_detector_finds_what_moves() -> None:
    example = recipe()
    detector = example.MotionDetector()

    counts = [len(detector(picture)[0]) for picture in example.drawn_clip(8)]

    assert counts[:2] == [0, 1]
    assert min(counts[5:]) >= 2


def test_detections_become_objects_with_lasting_ids() -> None:
    example = recipe()
    clip = list(example.drawn_clip())

    results = list(
        example.track(Model(ColourModel()), [clip[0], *clip[5:]], example.MotionDetector())
    )

    assert [result.objects for result in results] == [()] + [(1, 2)] * 7
    last = np.asarray(results[-1].masks)
    assert [(mask[60, 109], mask[50, 133]) for mask in last] in (
        [(True, False), (False, True)],
        [(False, True), (True, False)],
    )
