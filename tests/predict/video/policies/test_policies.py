"""Memory policies on drawn scenes: where each helps, and where it must not matter."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from samgraph.errors import OptionError
from samgraph.models.family import OffersAlternatives
from samgraph.models.sam2.config import CONFIGS
from samgraph.predict.video.policies.history import (
    BoundPolicy,
    Candidates,
    History,
    Observation,
    ObservingPolicy,
    box_overlaps,
    nearest,
)
from samgraph.predict.video.policies.motion import MotionAwarePolicy
from samgraph.predict.video.policies.quality import quality
from samgraph.predict.video.policies.table import (
    POLICIES,
    make_policy,
    policy_of,
    policy_record,
    policy_schema,
)
from samgraph.predict.video.policy import MemoryPolicy, Position, ReferencePolicy
from samgraph.predict.video.sessions import resume
from samgraph.predict.video.stream import Stream, open_stream
from samgraph.predict.video.video import Video, open_video
from samgraph.runtime import CompileOptions
from samgraph.untrusted.schema import SchemaError
from tests.golden import scenes
from tests.predict.colour_model import ColourModel, Frame, Mask, disc, draw
from tests.predict.models import tiny_model
from tests.tolerances import SAME_DECODER

RED, ORANGE = (200, 40, 40), (200, 130, 40)
OTHERS = [name for name in POLICIES if name != "sam2"]
Scene = tuple[list[Frame], list[Mask]]


def shade(share: float) -> tuple[int, int, int]:
    """A colour between red and orange."""
    return (200, round(40 + 90 * share), 40)


def occluded() -> Scene:
    """A disc is away for twelve frames: twice what SAM 2 remembers."""
    frames, truth = [], []
    for index in range(30):
        here = not 8 <= index < 20
        frames.append(draw(*([(12 + index, 30, 7, RED)] if here else [])))
        truth.append(disc(12 + index, 30, 7) & here)
    return frames, truth


def crossing() -> Scene:
    """A disc that flickers passes another, which is what it looks like on average."""
    frames, truth = [], []
    for index in range(40):
        own = shade(0.25 + 0.25 * (index % 2))
        discs: list[Any] = [(8 + index, 24, 5, own)]
        if index >= 20:
            discs.append((56 - index, 44, 5, shade(0.4)))
        frames.append(draw(*discs))
        truth.append(disc(8 + index, 24, 5))
    return frames, truth


def disguised() -> Scene:
    """A red disc turns orange beside a red one; both are away for eight frames."""
    frames, truth = [], []
    for index in range(44):
        here = not 30 <= index < 38
        own = shade(min(index / 16, 1.0))
        discs = [(16, 20 + index / 4, 6, own)] if here else []
        if here and index >= 14:
            discs.append((46, 20 + index / 4, 6, RED))
        frames.append(draw(*discs))
        truth.append(disc(16, 20 + index / 4, 6) & here)
    return frames, truth


def steady() -> Scene:
    """A disc and another of a different colour, always visible."""
    blue = (40, 60, 200)
    frames = [draw((10 + index, 20, 6, RED), (50 - index, 48, 6, blue)) for index in range(30)]
    return frames, [disc(10 + index, 20, 6) for index in range(30)]


def followed(scene: Scene, policy: Any, model: Any) -> tuple[Video, list[float]]:
    """The IoU on each frame after the first."""
    frames, truth = scene
    video = open_video(model, frames, policy=policy)
    video.add(frame=0, object=1, mask=truth[0])
    ious = []
    for result in video.track(start=1):
        found, wanted = result.mask(1), truth[result.index]
        union = np.count_nonzero(found | wanted)
        ious.append(np.count_nonzero(found & wanted) / union if union else 1.0)
    return video, ious


@pytest.mark.parametrize(
    ("policy", "scene", "least_trust", "since"),
    [
        ("quality-gated", occluded, 0.3, 20),
        ("motion-aware", crossing, 0.3, 20),
        ("distractor-aware", disguised, 0.08, 38),
    ],
)
def test_a_policy_helps_where_it_should(
    policy: str, scene: Any, least_trust: float, since: int
) -> None:
    model = ColourModel(least_trust)

    _, usual = followed(scene(), "sam2", model)
    _, better = followed(scene(), policy, model)

    assert min(usual[: since - 2]) == 1.0, "both begin well"
    assert np.mean(usual[since:]) < 0.6
    assert min(better) == 1.0


@pytest.mark.parametrize("policy", OTHERS)
def test_a_policy_changes_nothing_on_a_plain_scene(policy: str) -> None:
    model = ColourModel()

    _, usual = followed(steady(), "sam2", model)
    _, other = followed(steady(), policy, model)

    assert usual == other == [1.0] * 29


@pytest.mark.parametrize("policy", OTHERS)
def test_a_policy_works_with_fewer_memories(policy: str) -> None:
    """The approximation reads part of what the policy chooses, by the object's own history."""
    model = ColourModel(0.1)
    model.session.options = CompileOptions(approximation="few-memories")

    video, ious = followed(steady(), policy, model)

    assert ious == [1.0] * 29
    obj = video.states[1]
    read = obj.policy.choose(Position(29), obj.bank.prompted, obj.tracked)
    whole = BoundPolicy(policy_named(policy), obj.history).choose(
        Position(29), obj.bank.prompted, obj.tracked
    )
    assert 1 < len(read.masks) < len(whole.masks)
    assert set(read.masks) < set(whole.masks)
    assert len(obj.history.observed) == 29


@pytest.mark.parametrize("policy", OTHERS)
def test_masks_of_sam_2_are_the_same_while_memory_is_the_same(policy: str) -> None:
    """On the first frames every policy reads what SAM 2 does, to rounding."""
    model = tiny_model()
    assert isinstance(model, OffersAlternatives)
    logits = []
    for name in ("sam2", policy):
        video = open_video(model, scenes.frames(3), policy=name)
        video.add(frame=0, object=1, box=(17, 27, 63, 73))
        video.add(frame=0, object=2, points=[(118, 66)])
        logits.append([result.low_logits for result in video.track()])

    for one, other in zip(*logits, strict=True):
        np.testing.assert_allclose(one, other, atol=SAME_DECODER)


def test_the_default_is_the_rule_of_sam_2() -> None:
    video = open_video(tiny_model(), scenes.frames(2))

    assert type(video.policy) is ReferencePolicy
    assert not isinstance(video.policy, ObservingPolicy)


@pytest.mark.parametrize("policy", OTHERS)
def test_a_correction_far_back_tracks_again_as_before(policy: str) -> None:
    """What was forgotten is tracked again, with the same choices, and nothing is noted twice."""
    model, scene = ColourModel(), crossing()
    runs = []
    for archive_mb in (24.0, 0.0):
        video = open_video(model, scene[0], policy=policy, archive_mb=archive_mb, results_mb=0)
        video.add(frame=0, object=1, mask=scene[1][0])
        list(video.track())
        before = {frame: found.row() for frame, found in video.states[1].history.observed.items()}
        runs.append([result.masks for result in video.track(start=30, end=34)])
        for frame, row in before.items():
            found = video.states[1].history.observed[frame].row()
            np.testing.assert_array_equal(found, row)

    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.parametrize("policy", OTHERS)
def test_a_stream_with_a_policy_is_a_video_and_does_not_grow(policy: str) -> None:
    model, scene = ColourModel(), crossing()
    stream = open_stream(model, policy=policy, length=len(scene[0]))
    stream.step(scene[0][0])
    stream.add(object=1, mask=scene[1][0])
    found: list[npt.NDArray[Any]] = [stream.step(frame).masks for frame in scene[0][1:]]

    video, _ = followed(scene, policy, model)
    tracked = [result.masks for result in video.track(start=1)]

    np.testing.assert_array_equal(found, tracked)
    for index in range(60):
        stream.step(scene[0][index % 40])
    obj = stream.states[1]
    assert len(obj.bank.tracked) <= 20
    assert len(obj.history.observed) <= 36


@pytest.mark.parametrize("policy", POLICIES)
def test_a_saved_session_goes_on_with_its_policy(policy: str, tmp_path: Path) -> None:
    model, scene, file = ColourModel(), crossing(), tmp_path / "session.safetensors"
    stream = open_stream(model, policy=policy)
    stream.step(scene[0][0])
    stream.add(object=1, mask=scene[1][0])
    for frame in scene[0][1:25]:
        stream.step(frame)
    stream.save(file)

    again = resume(model, file)

    assert isinstance(again, Stream)
    assert again.policy == stream.policy
    assert type(again.policy) is type(stream.policy)
    for frame in scene[0][25:32]:
        np.testing.assert_array_equal(again.step(frame).masks, stream.step(frame).masks)


def test_a_policy_in_a_session_is_checked() -> None:
    record = policy_record(policy_named("motion-aware"))
    assert record is not None
    damages: tuple[dict[str, Any], ...] = (
        {"name": "best"},
        {"name": ["sam2"]},
        {"motion_weight": 2.0},
        {"least_quality": 0.5},
    )
    for damage in damages:
        with pytest.raises(SchemaError, match="policy"):
            policy_schema(record | damage, "policy")


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_a_record(name: str) -> None:
    policy = make_policy(name, ColourModel().config, max_prompted=3, stride=2)
    record = policy_record(policy)

    assert record is not None
    assert policy_of(record) == policy
    assert isinstance(policy, MemoryPolicy)
    assert isinstance(policy, ObservingPolicy) == (name != "sam2")


def test_a_policy_must_exist_and_suit_the_model() -> None:
    with pytest.raises(OptionError, match="no memory policy `best`"):
        open_stream(tiny_model(), policy="best")
    with pytest.raises(OptionError, match="`policy` is no memory policy"):
        open_stream(tiny_model(), policy=3)

    class OneMask(ColourModel):
        decode_alternatives = None  # type: ignore[assignment]  # as of a family without it

    one_mask: Any = OneMask()
    assert open_stream(one_mask, policy="quality-gated").objects == ()
    with pytest.raises(OptionError, match="compares the masks"):
        open_stream(one_mask, policy="motion-aware")


def policy_named(name: str) -> ObservingPolicy:
    policy = make_policy(name, ColourModel().config, max_prompted=None, stride=1)
    assert isinstance(policy, ObservingPolicy)
    return policy


def observed(**flags: Any) -> Observation:
    return Observation(0, 5.0, 0.9, **flags)


def test_gated_memory_reads_reliable_frames_and_the_last() -> None:
    history = History()
    for frame in range(1, 40):
        history.note(frame, observed(is_reliable=frame <= 12 or frame % 10 == 0))
    policy = policy_named("quality-gated")

    read = policy.choose(Position(40), [0], range(1, 40), history)

    assert [frame for frame, _, _ in read.masks] == [0, 10, 11, 12, 20, 30, 39]
    assert [slot for _, slot, _ in read.masks] == [6, 5, 4, 3, 2, 1, 0]
    assert [frame for frame, _, _ in read.pointers][:5] == [0, 39, 30, 20, 12]
    masks, pointers = policy.kept(range(1, 41), Position(40), history)
    assert masks == {9, 10, 11, 12, 20, 30, 40}
    assert len(pointers) == 16 - 1


def test_gated_memory_works_backward() -> None:
    history = History()
    for frame in range(40, 10, -1):
        history.note(frame, observed(is_reliable=frame >= 30))
    policy = policy_named("quality-gated")

    read = policy.choose(Position(10, True), [41], range(11, 41), history)

    assert [frame for frame, _, _ in read.masks] == [41, 34, 33, 32, 31, 30, 11]


def test_quality_is_that_of_the_published_rule() -> None:
    for score, iou in ((-3.0, 0.9), (0.0, 0.9), (0.02, 0.9), (2.0, 0.5), (500.0, 0.25)):
        expected = max(0.0, 2 / (1 + np.exp(-score)) - 1) * iou
        assert quality(score, iou) == pytest.approx(expected)


def candidates(*boxes: tuple[int, int, int, int], ious: Any, score: float = 5.0) -> Candidates:
    found = np.array(boxes, np.float32)
    areas = (found[:, 2] - found[:, 0]) * (found[:, 3] - found[:, 1])
    masks = np.zeros((len(boxes), 64, 64), np.bool_)
    for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
        mask[top:bottom, left:right] = True
    return Candidates(score, np.array(ious, np.float32), found, areas, masks)


def test_an_anchor_is_sure_usual_far_from_the_last_and_beside_a_distractor() -> None:
    policy = policy_named("distractor-aware")
    own, other, near = (10, 10, 20, 20), (40, 40, 50, 50), (10, 10, 20, 21)
    sure = candidates(own, other, ious=(0.9, 0.2))

    def is_anchor(offered: Candidates, last_anchor: int = 0, area: float = 100.0) -> bool:
        history = History()
        for frame in range(1, 20):
            history.note(frame, observed(area=area, is_anchor=frame == last_anchor))
        return policy.observe(history, Position(20), offered).is_anchor

    assert is_anchor(sure)
    assert is_anchor(sure, last_anchor=14)
    assert not is_anchor(sure, last_anchor=15)
    assert not is_anchor(sure, area=130.0)
    assert not is_anchor(candidates(own, near, ious=(0.9, 0.2)))
    assert not is_anchor(candidates(own, other, ious=(0.8, 0.2)))
    assert not is_anchor(candidates(own, other, ious=(0.9, 0.2), score=-1.0))
    part, whole = (10, 10, 14, 14), (10, 10, 20, 24)
    assert not is_anchor(candidates(own, part, ious=(0.9, 0.2))), "a part of the object"
    assert not is_anchor(candidates(own, whole, ious=(0.9, 0.2))), "10 / 14 is more than 0.7"
    assert is_anchor(candidates(own, (10, 10, 20, 25), ious=(0.9, 0.2)))
    specks = candidates(own, (10, 10, 20, 22), ious=(0.9, 0.2))
    specks.masks[1, 60, 60] = True
    assert not is_anchor(specks), "the largest part outside the object decides"


def test_anchors_are_read_as_prompted_frames_and_kept() -> None:
    history = History()
    for frame in range(1, 60):
        history.note(frame, observed(area=50.0, is_anchor=frame in (5, 12, 20, 30, 58)))
    policy = policy_named("distractor-aware")

    read = policy.choose(Position(60), [0], range(1, 60), history)

    assert [read[0] for read in read.masks] == [0, 12, 20, 30, 58, 54, 55, 56, 57, 59]
    assert [slot for _, slot, _ in read.masks][:5] == [6] * 5
    assert [given for _, _, given in read.masks] == [True] + [False] * 9
    assert {12, 20, 30, 58} <= policy.kept(range(1, 60), Position(59), history)[0]
    assert 5 not in policy.kept(range(1, 60), Position(59), history)[0]


def test_motion_counts_after_steady_frames_only() -> None:
    policy = policy_named("motion-aware")

    def choice(steps: int) -> int:
        history = History()
        for frame in range(steps):
            box = (10 + frame, 10, 20 + frame, 20)
            history.note(
                frame, policy.observe(history, Position(frame), candidates(box, ious=(0.8,)))
            )
        expected = (10 + steps, 10, 20 + steps, 20)
        offered = candidates((40, 40, 50, 50), expected, ious=(0.85, 0.8))
        return policy.observe(history, Position(steps), offered).choice

    assert choice(14) == 0
    assert choice(15) == 1


def test_a_large_model_trusts_its_own_scores_more() -> None:
    assert MotionAwarePolicy.of(CONFIGS["sam2.1-large"]).motion_weight == 0.15
    assert MotionAwarePolicy.of(CONFIGS["sam2.1-tiny"]).motion_weight == 0.25


def test_the_nearest_frames_in_either_direction() -> None:
    frames = [1, 4, 9, 16]

    assert nearest(frames, Position(9), 2) == [4, 1]
    assert nearest(frames, Position(9), 2, with_own=True) == [9, 4]
    assert nearest(frames, Position(4, True), 2) == [9, 16]
    assert nearest(frames, Position(4, True), 1, with_own=True) == [4]
    assert nearest([], Position(4), 3) == []


def test_boxes_that_overlap() -> None:
    found = box_overlaps((0, 0, 10, 10), [(0, 0, 10, 10), (5, 0, 15, 10), (20, 20, 30, 30)])

    assert found.tolist() == pytest.approx([1.0, 1 / 3, 0.0])
