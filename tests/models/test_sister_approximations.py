"""Sister models with each approximation and each memory policy, in videos, streams and sessions."""

from pathlib import Path

import numpy as np
import pytest
from numpy.linalg import norm

from samgraph.errors import CheckpointError
from samgraph.predict.video.policies.table import DEFAULT, POLICIES
from samgraph.predict.video.stream import Stream
from samgraph.predict.video.video import Video
from samgraph.runtime import APPROXIMATIONS
from tests.models.sisters import EDGETAM, EFFICIENTTAM, SISTERS, disc, small_sister
from tests.tolerances import COMPAT_TRACKED_LOGITS as SAME
from tests.tolerances import TRACKED_RANDOM_RMS

FRAMES = [np.roll(disc(), 3 * shift, axis=1) for shift in range(5)]
CLICK, BOX = (30.0, 20.0), (40, 5, 70, 40)
BOTH = (EDGETAM.name, EFFICIENTTAM.name)

approximated = pytest.mark.parametrize("approximation", APPROXIMATIONS)


def clicked(
    name: str, approximation: str | None, engine: str = "openvino", policy: str = DEFAULT
) -> Video:
    """Two objects, one of them only from the second frame on: their banks differ."""
    video = small_sister(name, engine, approximation).video(FRAMES, policy=policy)
    video.add(frame=0, object=1, points=[CLICK])
    video.add(frame=1, object=2, box=BOX)
    return video


def tracked(video: Video) -> list[np.ndarray]:
    return [np.asarray(frame.low_logits) for frame in video.track()]


@approximated
@pytest.mark.parametrize("name", SISTERS)
def test_a_video_is_tracked_as_on_the_reference_engine(name: str, approximation: str) -> None:
    found = tracked(clicked(name, approximation))
    exact = tracked(clicked(name, None))

    wanted = tracked(clicked(name, approximation, "reference"))

    assert [len(objects) for objects in found] == [len(objects) for objects in wanted]
    errors = [norm(a - b) / norm(b) for a, b in zip(found, wanted, strict=True)]
    assert max(errors) < TRACKED_RANDOM_RMS
    if approximation == "small-input":
        assert found[0].shape[-1] == exact[0].shape[-1] // 2
    else:
        np.testing.assert_array_equal(found[0], exact[0])  # nothing is remembered yet
        changes = [np.abs(a - b).max() for a, b in zip(found[1:], exact[1:], strict=True)]
        assert max(changes) > 1e-3  # engines differ by less than a tenth of it


@approximated
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", BOTH)
def test_every_policy_goes_with_every_approximation(
    name: str, policy: str, approximation: str, tmp_path: Path
) -> None:
    """A stream with it is the video, keeps a bounded number of frames, and is saved with both."""
    path = tmp_path / "session.safetensors"
    model = small_sister(name, approximation=approximation)
    video = model.video(FRAMES, policy=policy)
    video.add(frame=0, object=1, points=[CLICK])
    wanted = tracked(video)
    stream = model.stream(policy=policy, length=len(FRAMES))
    stream.step(FRAMES[0])
    stream.add(object=1, points=[CLICK])

    found = [np.asarray(stream.step(frame).low_logits) for frame in FRAMES[1:]]
    stream.save(path)
    again = model.resume(path)
    assert isinstance(again, Stream)
    assert again.policy == stream.policy
    for frame in FRAMES[:2]:
        one, other = (each.step(frame).low_logits for each in (stream, again))
        np.testing.assert_allclose(one, other, atol=SAME)
    for index in range(18):
        assert np.isfinite(stream.step(FRAMES[index % 5]).low_logits).all()

    assert max(np.abs(a - b).max() for a, b in zip(found, wanted[1:], strict=True)) < SAME
    assert len(stream.states[1].bank.tracked) <= 20
    with pytest.raises(CheckpointError, match="made with another approximation") as raised:
        small_sister(name).resume(path)
    assert (raised.value.got, raised.value.expected) == (approximation, "exact")
