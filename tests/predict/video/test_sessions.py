"""Sessions that are saved and taken up again: the same masks, and no surprises in the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from samgraph import checkpoint
from samgraph.errors import CheckpointError, OptionError, OutputError
from samgraph.predict.video.bank import MemoryPrecision
from samgraph.predict.video.policy import ReferencePolicy
from samgraph.predict.video.sessions import KEY, resume
from samgraph.predict.video.stream import Stream, open_stream
from samgraph.predict.video.video import Video, open_video
from tests.golden import scenes
from tests.predict.models import small_model, tiny_model

BOX = (17, 27, 63, 73)
FRAMES = 8


def opened(**options: Any) -> Video:
    video = open_video(tiny_model(), scenes.frames(FRAMES), **options)
    video.add(frame=0, object=1, box=BOX)
    video.add(frame=0, object="two", points=[(118, 84)])
    return video


def resumed(path: Path, **options: Any) -> Video:
    video = resume(tiny_model(), path, source=scenes.frames(FRAMES), **options)
    assert isinstance(video, Video)
    return video


def lows(results: Any) -> dict[int, npt.NDArray[np.float32]]:
    return {result.index: result.low_logits for result in results}


def assert_equal(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for frame in one:
        np.testing.assert_array_equal(one[frame], other[frame], err_msg=f"frame {frame}")


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_video_goes_on_with_the_same_masks(tmp_path: Path, precision: MemoryPrecision) -> None:
    path = tmp_path / "session.safetensors"
    video = opened(memory_precision=precision)
    list(video.track(end=3))
    video.save(path)
    expected = lows(video.track(start=video.position, logits=True))

    again = resumed(path)
    found = lows(again.track(start=again.position, logits=True))

    assert again.objects == (1, "two")
    assert again.options.memory_precision == precision
    assert_equal(found, expected)


def test_prompts_that_were_not_tracked_yet_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    video = opened()
    list(video.track(end=3))
    video.add(frame=3, object=1, points=[(60, 50)])
    mask = np.zeros(video.size_hw, np.bool_)
    mask[10:40, 10:50] = True
    video.add(frame=5, object=3, mask=mask)
    video.save(path)

    again = resumed(path)

    assert_equal(lows(again.track(logits=True)), lows(video.track(logits=True)))


def test_a_correction_after_a_restart_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    video = opened()
    list(video.track(end=3))
    video.save(path)
    again = resumed(path)

    results = [one.add(frame=3, object=1, points=[(60, 50)]) for one in (video, again)]

    np.testing.assert_allclose(results[0].low_logits, results[1].low_logits, atol=1e-3)


def test_a_video_file_is_opened_again_by_itself(tmp_path: Path) -> None:
    from PIL import Image

    folder = tmp_path / "frames"
    folder.mkdir()
    for index in range(3):
        Image.fromarray(scenes.frame(index)).save(folder / f"{index}.png")
    video = open_video(tiny_model(), folder)
    video.add(frame=0, object=1, box=BOX)
    video.save(tmp_path / "session.safetensors")

    again = resume(tiny_model(), tmp_path / "session.safetensors")

    assert isinstance(again, Video)
    assert [result.index for result in again.track()] == [0, 1, 2]


def test_a_stream_goes_on_with_the_same_masks(tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    stream = open_stream(tiny_model())
    for index in range(4):
        stream.step(scenes.frame(index))
        if index == 0:
            stream.add(object=1, box=BOX)
    stream.add(object=1, points=[(60, 50)])
    stream.save(path)
    again = resume(tiny_model(), path)
    assert isinstance(again, Stream)

    assert again.position == 4
    one, other = (
        [each.add(object=2, points=[(118, 66)]).low_logits]
        + [each.step(scenes.frame(index)).low_logits for index in range(4, 7)]
        for each in (stream, again)
    )

    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def test_options_are_remembered_and_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    video = opened(memory_precision="fp32", overlaps=False, stride=2, max_prompted=3)
    video.save(path)

    same, other = resumed(path), resumed(path, overlaps=True)

    assert not same.display.overlaps
    assert other.display.overlaps
    assert isinstance(same.policy, ReferencePolicy)
    assert same.policy.stride == 2
    assert same.options.memory_precision == "fp32"


def test_options_that_do_not_exist_are_named(tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    opened().save(path)
    with pytest.raises(OptionError, match="a video has no option `colour`"):
        resumed(path, colour="red")
    open_stream(tiny_model()).save(path)
    with pytest.raises(OptionError, match="a stream has no option `source`"):
        resume(tiny_model(), path, source=scenes.frames(FRAMES))


def test_a_session_belongs_to_its_model_and_its_video(tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    opened().save(path)

    with pytest.raises(CheckpointError, match="another model"):
        resume(small_model(), path, source=scenes.frames(FRAMES))
    with pytest.raises(CheckpointError, match="another video"):
        resume(tiny_model(), path, source=scenes.frames(3))
    with pytest.raises(OptionError, match="not a file"):
        resume(tiny_model(), path)


def test_files_that_are_no_session_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    checkpoint.save(path, {"x": np.zeros(3, np.float32)})
    with pytest.raises(CheckpointError, match="not a saved session"):
        resume(tiny_model(), path)

    path.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError):
        resume(tiny_model(), path)
    with pytest.raises(CheckpointError):
        resume(tiny_model(), tmp_path / "missing.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"objects": [{"name": 1}]},
        {"objects": 7},
        {"display": {"nonsense": 1}},
        {"position": "far"},
        {"policy": {"stride": "wide"}},
        {"kind": "song"},
    ],
)
def test_a_session_that_was_tampered_with_is_one_clear_error(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "session.safetensors"
    opened().save(path)
    found = checkpoint.read(path)
    record = json.loads(found.metadata[KEY]) | change
    checkpoint.save(path, found.tensors, metadata={KEY: json.dumps(record)})

    with pytest.raises((CheckpointError, OptionError)):
        resume(tiny_model(), path, source=scenes.frames(FRAMES))


def test_a_memory_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "session.safetensors"
    video = opened()
    list(video.track(end=1))
    video.save(path)
    found = checkpoint.read(path)
    name = next(name for name in found.tensors if name.endswith("pointer"))
    tensors = {**found.tensors, name: np.zeros(3, np.float32)}
    checkpoint.save(path, tensors, metadata=found.metadata)

    with pytest.raises(CheckpointError, match="does not fit"):
        resumed(path)


def test_a_session_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    video = opened()

    with pytest.raises(OutputError):
        video.save(tmp_path / "nowhere" / "session.safetensors")
