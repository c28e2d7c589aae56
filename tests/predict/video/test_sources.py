"""What videos are made of, what is refused, and what stays in memory."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from samgraph.errors import OptionError, PromptError, VideoError
from samgraph.media.image.reading import encode_image
from samgraph.media.video.writer import VideoWriter
from samgraph.predict.video.video import Video, open_video
from tests.golden import scenes
from tests.predict.models import tiny_model

BOX = (17, 27, 63, 73)


def tracked(source: Any, **options: Any) -> dict[int, npt.NDArray[np.float32]]:
    video = open_video(tiny_model(), source, **options)
    video.add(frame=0, object=1, box=BOX)
    return {result.index: result.low_logits for result in video.track()}


def test_a_list_an_array_a_folder_and_an_iterator_are_the_same(tmp_path: Path) -> None:
    frames = scenes.frames(4)
    for index, frame in enumerate(frames):
        (tmp_path / f"take {index}.png").write_bytes(encode_image(frame))
    expected = tracked(frames)

    for source in (np.stack(frames), tmp_path, str(tmp_path)):
        for number, low in tracked(source).items():
            np.testing.assert_array_equal(low, expected[number])
    for number, low in tracked(iter(frames), length=4).items():
        np.testing.assert_array_equal(low, expected[number])


def test_a_video_file_has_times(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    with VideoWriter(path, (scenes.HEIGHT, scenes.WIDTH), rate=25) as film:
        for frame in scenes.frames(6):
            film.write(frame)

    with open_video(tiny_model(), path) as video:
        video.add(frame=np.int64(2), object=1, box=BOX)  # type: ignore[arg-type]  # taken too
        results = list(video.track(both=True))

    assert [result.index for result in results] == [2, 3, 4, 5, 1, 0]
    assert [result.time for result in results] == pytest.approx([0.08, 0.12, 0.16, 0.2, 0.04, 0])
    assert video.origin == str(path)


def test_an_iterator_is_read_as_it_is_tracked() -> None:
    given = []

    def frames() -> Iterator[npt.NDArray[np.uint8]]:
        for index in range(30):
            given.append(index)
            yield scenes.frame(index % 10)

    video = open_video(tiny_model(), frames())
    video.add(frame=0, object=1, box=BOX)
    run = video.track()
    next(run), next(run)

    assert len(given) < 10
    assert video.length is None
    run.close()  # type: ignore[attr-defined]  # it is a generator


def test_frames_that_cannot_be_read_are_skipped_and_counted() -> None:
    items: list[Any] = scenes.frames(5)
    items[2] = io.BytesIO(b"not an image")

    video = open_video(tiny_model(), items, on_damage="skip")
    video.add(frame=0, object=1, box=BOX)
    frames = [result.index for result in video.track()]

    assert frames == [0, 1, 3, 4]
    assert video.damage.missing == (2,)
    assert [result.index for result in video.track()] == frames


def test_a_frame_that_cannot_be_read_is_an_error_otherwise() -> None:
    items: list[Any] = scenes.frames(3)
    items[1] = b"not an image"

    with pytest.raises(VideoError):
        open_video(tiny_model(), items)


@pytest.fixture(scope="module")
def video() -> Video:
    return open_video(tiny_model(), scenes.frames(4))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"frame": 4, "points": [(1, 1)]}, "no frame 4"),
        ({"frame": -1, "points": [(1, 1)]}, "no frame -1"),
        ({"frame": "0", "points": [(1, 1)]}, "by its number"),
        ({"frame": 0}, "needs points"),
        ({"frame": 0, "labels": [1]}, "labels are given without points"),
        ({"frame": 0, "points": [(1, 1)], "labels": [1, 0]}, "needs a label"),
        ({"frame": 0, "points": [(1, 1)], "labels": [3]}, "no label"),
        ({"frame": 0, "points": [(1, 2, 3)]}, "pairs"),
        ({"frame": 0, "points": [(500, 1)]}, "outside"),
        ({"frame": 0, "points": [(float("nan"), 1)]}, "finite"),
        ({"frame": 0, "points": [[(1, 1)], [(2, 2)]]}, "one object"),
        ({"frame": 0, "box": (1, 2, 3)}, "box"),
        ({"frame": 0, "box": (50, 50, 20, 60)}, "upside down"),
        ({"frame": 0, "mask": np.zeros((5, 5), bool)}, "another size"),
        ({"frame": 0, "mask": "disc"}, "truth value"),
        ({"frame": 0, "mask": np.zeros((120, 160), bool), "box": BOX}, "alone"),
        ({"frame": 0, "object": 1.5, "box": BOX}, "number or a text"),
        ({"frame": 0, "object": "", "box": BOX}, "number or a text"),
        ({"frame": 0, "object": True, "box": BOX}, "number or a text"),
    ],
)
def test_a_prompt_that_makes_no_sense_is_refused(
    video: Video, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(PromptError, match=message):
        video.add(**{"object": 1, **given})
    assert video.objects == ()


def test_there_must_be_something_to_track(video: Video) -> None:
    with pytest.raises(PromptError, match="nothing to track"):
        video.track()
    with pytest.raises(PromptError, match="no object `7`"):
        video.remove(7)
    with pytest.raises(OptionError, match="what to clear"):
        video.clear()


def test_a_run_over_frames_that_do_not_exist_is_refused(video: Video) -> None:
    video.add(frame=0, object=1, box=BOX)

    with pytest.raises(PromptError, match="no frame 9"):
        video.track(start=9)
    with pytest.raises(OptionError, match="both"):
        video.track(both=True, reverse=True)
    video.reset()


@pytest.mark.parametrize(
    "options",
    [
        {"memory_precision": "fp8"},
        {"cache_mb": -1},
        {"archive_mb": -1},
        {"fill_holes": -1},
        {"objects_at_once": 0},
        {"on_damage": "ignore"},
    ],
)
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        open_video(tiny_model(), scenes.frames(2), **options)


def test_what_stays_in_memory_does_not_grow_with_the_video() -> None:
    def looped() -> Iterator[npt.NDArray[np.uint8]]:
        for index in range(60):
            yield scenes.frame(index % 10)

    video = open_video(tiny_model(), looped(), archive_mb=0.1, results_mb=0.001, cache_mb=1)
    video.add(frame=0, object=1, box=BOX)
    one = video.states[1]
    sizes = []

    for result in video.track():
        kept = one.bank.nbytes + one.archive.nbytes + video.encoded.nbytes
        sizes.append(kept + one.runs[False].nbytes)
        assert result.index < 60

    assert len(sizes) == 60
    assert max(sizes[30:]) <= max(sizes[:30]) * 1.02
    assert one.archive.nbytes <= 0.1 * (1 << 20)
    assert video.encoded.nbytes <= 1 << 20
    assert len(one.bank.tracked) <= 35
