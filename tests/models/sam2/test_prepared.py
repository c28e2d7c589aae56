"""Clicks on a prepared image: `prepare_image` and `decode_prepared` say what `decode` says."""

import numpy as np
import pytest

from samgraph.graph import Array
from samgraph.models import family
from tests import tolerances
from tests.models.sam2.bench import Bench, bench_for, rows

ABSENT = family.ABSENT
POINTS = np.array([[[40, 50], [0, 0]], [[200, 10], [3, 250]], [[0, 0], [0, 0]]], np.float32)
LABELS = np.array([[1, ABSENT], [2, 3], [ABSENT, ABSENT]])


def features(bench: Bench) -> dict[str, Array]:
    config, rng = bench.config, np.random.default_rng(5)
    C, E, L = config.channels, config.grid, config.mask_size
    shapes = {
        "embedding": (1, C, E, E),
        "fine_0": (1, C // 8, L, L),
        "fine_1": (1, C // 4, 2 * E, 2 * E),
    }
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def decoded(bench: Bench, points: Array, labels: Array) -> dict[str, Array]:
    """The same prompts through the graph that takes everything."""
    count, side = len(points), bench.config.mask_size
    return bench.graph(
        "decode",
        **{name: rows(array, count) for name, array in features(bench).items()},
        points=points,
        labels=labels,
        mask=np.zeros((count, 1, side, side), np.float32),
        has_mask=np.zeros(count, np.bool_),
        no_memory=np.ones(count, np.bool_),
        multimask=np.ones(count, np.bool_),
    )


@pytest.mark.parametrize("name", ["test", "test2"])
@pytest.mark.parametrize("engine", ["reference", "openvino"])
def test_a_prepared_image_gives_the_same_masks(name: str, engine: str) -> None:
    _, bench = bench_for(name, engine)
    prepared = bench.graph("prepare_image", **features(bench))

    found = bench.graph("decode_prepared", **prepared, points=POINTS, labels=LABELS)

    expected = decoded(bench, POINTS, LABELS)
    for key in ("masks", "ious", "object_score"):
        scale = max(1.0, float(np.abs(expected[key]).max()))
        assert np.abs(found[key] - expected[key]).max() / scale < tolerances.DECODER
    assert np.abs(found["stability"] - expected["stability"]).max() < tolerances.STABILITY


def test_absent_points_are_not_seen() -> None:
    _, bench = bench_for("test", "openvino")

    long, short = decoded(bench, POINTS[:1], LABELS[:1]), decoded(bench, *_first(POINTS, LABELS))

    assert np.abs(long["masks"] - short["masks"]).max() < tolerances.IMAGE_LOGITS


def test_a_list_of_absent_points_has_no_end_either() -> None:
    _, bench = bench_for("test", "openvino")

    nothing, no_point = (
        decoded(bench, POINTS[2:, :1], np.full((1, 1), label)) for label in (ABSENT, -1)
    )

    assert np.abs(nothing["masks"] - no_point["masks"]).max() > 0.01


def _first(points: Array, labels: Array) -> tuple[Array, Array]:
    return np.ascontiguousarray(points[:1, :1]), np.ascontiguousarray(labels[:1, :1])
