"""Sessions that were not recorded: `samgraph.compat` beside the reference, call by call.

Memory is kept in float32 on both sides, so that results can be compared closely.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.models.family import SegmentationModel
from samgraph.models.loading import load_model
from samgraph.runtime import CompileOptions
from tests.compat.sessions import predictor_for
from tests.golden import scenes
from tests.golden.configs import CONFIGS
from tests.golden.video import _quietly, _Watched, mask_prompt
from tests.models.sam2.bench import config_from, known_weights
from tests.parity.reference import build_reference, to_numpy

pytestmark = [pytest.mark.parity, pytest.mark.timeout(600)]

FRAMES = 9
LOGITS = 1e-2
Call = tuple[str, dict[str, Any]]


def click(frame: int, name: Any, *points: tuple[float, float, int], **more: Any) -> Call:
    given = {"points": [point[:2] for point in points], "labels": [point[2] for point in points]}
    return "add_new_points_or_box", {"frame_idx": frame, "obj_id": name, **given, **more}


def box(frame: int, name: Any, *corners: float, **more: Any) -> Call:
    return "add_new_points_or_box", {"frame_idx": frame, "obj_id": name, "box": corners, **more}


def track(**given: Any) -> Call:
    return "propagate_in_video", given


SESSIONS: dict[str, tuple[list[Call], dict[str, Any]]] = {
    "objects in different frames, to and fro": (
        [
            click(2, "a", (40, 50, 1)),
            box(4, "b", 100, 40, 136, 80),
            track(),
            track(start_frame_idx=4, reverse=True),
            track(start_frame_idx=0, reverse=True),
            ("remove_object", {"obj_id": "a"}),
            track(start_frame_idx=3, max_frame_num_to_track=2),
            ("remove_object", {"obj_id": "b"}),
            click(0, "c", (118, 84, 1)),
            track(max_frame_num_to_track=1),
        ],
        {},
    ),
    "clicks that add up, then are taken back": (
        [
            click(0, 1, (40, 50, 1)),
            click(0, 1, (60, 60, 0), clear_old_points=False),
            click(0, 1, (30, 40, 1), (90, 20, 0)),
            click(3, 1, (60, 55, 1)),
            track(),
            ("clear_all_prompts_in_frame", {"frame_idx": 3, "obj_id": 1}),
            track(),
        ],
        {},
    ),
    "a box with a click, and a mask": (
        [
            box(0, 1, 17, 27, 63, 73, points=[(40, 50)], labels=[1]),
            ("add_new_mask", {"frame_idx": 1, "obj_id": 2, "mask": mask_prompt()}),
            ("add_new_mask", {"frame_idx": 2, "obj_id": 3, "mask": np.zeros((120, 160), bool)}),
            track(),
            click(4, 2, (50, 60, 1)),
            track(start_frame_idx=5),
        ],
        {},
    ),
    "points that are normalised already": (
        [
            click(0, 1, (0.25, 0.4, 1), normalize_coords=False),
            track(max_frame_num_to_track=3),
        ],
        {},
    ),
    "corrections that count": (
        [
            click(0, 1, (40, 50, 1)),
            track(),
            click(5, 1, (85, 58, 1)),
            click(3, 1, (20, 100, 0)),
            track(),
            track(start_frame_idx=6, reverse=True),
        ],
        {"add_all_frames_to_correct_as_cond": True},
    ),
    "few prompted frames are read": (
        [
            *(click(frame, 1, (40 + 9 * frame, 50, 1)) for frame in (0, 2, 3, 6)),
            track(),
            track(start_frame_idx=8, reverse=True),
        ],
        {"max_cond_frames_in_attn": 2},
    ),
    "every second frame is read": (
        [click(0, 1, (40, 50, 1)), track(), track(start_frame_idx=8, reverse=True)],
        {"memory_temporal_stride_for_eval": 2},
    ),
    "masks that do not overlap": (
        [click(0, 1, (40, 50, 1)), box(0, 2, 17, 27, 63, 73), track(max_frame_num_to_track=3)],
        {"non_overlap_masks": True},
    ),
    "plain masks, not post-processed": (
        [box(0, 1, 17, 27, 63, 73), click(1, 2, (40, 50, 1), (90, 20, 0)), track()],
        {
            "binarize_mask_from_pts_for_mem_enc": False,
            "sam_mask_decoder_extra_args.dynamic_multimask_via_stability": False,
        },
    ),
}


class Keeping(_Watched):
    """Keeps memory in float32; the rows it claims hold only for the usual options."""

    def _check_rows(self, rows: list[tuple[int, int]], stores: Any) -> None:
        pass


def models(config: str, seed: int) -> tuple[Any, SegmentationModel]:
    ours = config_from(CONFIGS[config], config)
    weights = known_weights(ours, seed)
    return build_reference(config, seed), load_model(
        weights, config=ours, options=CompileOptions(threads=2)
    )


@pytest.fixture(scope="module", params=["test", "test2"])
def both(request: pytest.FixtureRequest) -> tuple[Any, SegmentationModel]:
    return models(request.param, 14)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("frames")
    scenes.write_frames(path, FRAMES)
    return str(path)


def set_options(reference: Any, options: dict[str, Any]) -> Callable[[], None]:
    """Tell the reference its options; returns how to undo that."""
    before = {}
    for name, value in options.items():
        owner = reference
        if name.startswith("sam_mask_decoder_extra_args."):
            owner, name = reference.sam_mask_decoder, name.split(".")[1]
        before[name] = (owner, getattr(owner, name))
        setattr(owner, name, value)

    def undo() -> None:
        for name, (owner, value) in before.items():
            setattr(owner, name, value)

    return undo


def outcomes(predictor: Any, state: Any, calls: list[Call]) -> Iterator[tuple[str, Any]]:
    """What every call returns, as plain values and arrays."""
    for number, (name, given) in enumerate(calls):
        at = f"call {number}, {name}"
        if name == "propagate_in_video":
            for frame, ids, masks in predictor.propagate_in_video(state, **given):
                yield f"{at}, frame {frame}, {list(ids)}", to_array(masks)
        elif name == "remove_object":
            ids, updated = predictor.remove_object(state, **given)
            yield f"{at}, {list(ids)}, {sorted(frame for frame, _ in updated)}", np.zeros(1)
            for frame, masks in sorted(updated, key=lambda pair: int(pair[0])):
                yield f"{at}, frame {frame}", to_array(masks)
        else:
            frame, ids, masks = getattr(predictor, name)(state, **given)
            yield f"{at}, frame {frame}, {list(ids)}", to_array(masks)


def to_array(value: Any) -> Any:
    return to_numpy(value) if hasattr(value, "detach") else np.asarray(value)


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_is_that_of_the_reference(
    both: tuple[Any, SegmentationModel], folder: str, session: str
) -> None:
    reference, core = both
    calls, options = SESSIONS[session]
    settings = [f"{name}={str(value).lower()}" for name, value in options.items()]
    ours = predictor_for(core, "memory_precision=fp32", *settings)
    undo = set_options(reference, options)
    watched = Keeping(reference, keep_float32=True)
    try:
        state = _quietly(lambda: reference.init_state(folder))
        expected = _quietly(lambda: list(outcomes(reference, state, calls)))
    finally:
        watched.undo()
        undo()

    found = list(outcomes(ours, ours.init_state(folder), calls))

    assert [name for name, _ in found] == [name for name, _ in expected]
    for (name, mine), (_, theirs) in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape, name
        assert np.abs(mine - theirs).max(initial=0.0) < LOGITS, name
        assert np.mean((mine > 0) != (theirs > 0)) < 3e-4, name


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("add_new_points_or_box", {"points": [(1, 1)]}),
        ("add_new_points_or_box", {"labels": [1]}),
        ("add_new_points_or_box", {}),
        ("add_new_points_or_box", {"box": (1, 1, 9, 9), "clear_old_points": False}),
        ("remove_object", {"obj_id": 9, "strict": True}),
    ],
)
def test_both_refuse_what_makes_no_sense(
    both: tuple[Any, SegmentationModel], folder: str, call: str, given: dict[str, Any]
) -> None:
    reference, core = both
    ours = predictor_for(core)
    arguments = {"obj_id": 1, **given}
    if call != "remove_object":
        arguments["frame_idx"] = 0
    raised = []

    for predictor in (reference, ours):
        state = _quietly(partial(predictor.init_state, folder))
        with pytest.raises((ValueError, RuntimeError)) as error:
            getattr(predictor, call)(state, **arguments)
        raised.append(error.type)
        with pytest.raises(RuntimeError):
            list(predictor.propagate_in_video(state))

    assert raised[0] is raised[1]
