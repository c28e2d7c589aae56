"""Results of videos go to files, notebooks and other libraries; objects keep their numbers."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from samgraph.errors import OptionError, OutputError
from samgraph.formats import read_coco, read_davis
from samgraph.media.drawing import object_colour, overlay
from samgraph.media.image.reading import read_image, read_label_image
from samgraph.media.video.frames import open_frames
from samgraph.predict.model import Model
from samgraph.predict.video.video import Video
from tests.golden import scenes
from tests.predict.models import tiny_model

FRAMES = 4
BOX, OTHER = (17, 27, 63, 73), (100, 70, 130, 100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images whose names are not numbers in order."""
    path = tmp_path / "photos"
    path.mkdir()
    for index in range(FRAMES):
        Image.fromarray(scenes.frame(index)).save(path / f"img_{7 * index}.png")
    return path


def square(box: tuple[int, int, int, int]) -> NDArray[np.bool_]:
    left, top, right, bottom = box
    mask = np.zeros((scenes.HEIGHT, scenes.WIDTH), np.bool_)
    mask[top:bottom, left:right] = True
    return mask


@pytest.fixture
def video(folder: Path) -> Video:
    """A cup, drawn by hand on two frames: random weights lose it on the others."""
    found = Model(tiny_model()).video(folder)
    for frame in (0, 2):
        found.add(frame=frame, object="cup", mask=square(BOX))
    return found


def stems(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def test_a_video_is_exported_with_its_masks_drawn_in(video: Video, tmp_path: Path) -> None:
    (file,) = video.export(tmp_path / "new" / "out.mp4")

    with open_frames(file) as written:
        assert written.length == FRAMES
        assert written.size_hw == video.size_hw
        drawn = written.frame(0).astype(int)
    expected = next(video.track()).drawn().astype(int)
    plain = video.source.frame(0).astype(int)
    inside = square(BOX)
    assert np.abs(drawn - expected)[inside].mean() < 10  # H.264
    assert np.abs(drawn - plain)[inside].mean() > 30
    assert np.abs(drawn - plain)[~inside].mean() < 10


def test_masks_keep_the_names_of_their_images(video: Video, tmp_path: Path) -> None:
    files = video.export(tmp_path / "davis", "davis")
    video.export(tmp_path / "a.json", label="mug")

    names = [f"img_{7 * index}" for index in range(FRAMES)]
    assert stems(files) == [f"{name}.png" for name in names]
    found = read_coco(tmp_path / "a.json")
    assert [image.name for image in found] == [f"{name}.png" for name in names]
    assert {s.label for image in found for s in image.segments} == {"mug"}
    for image, frame in zip(read_davis(tmp_path / "davis"), video.track(), strict=True):
        masks = [segment.mask for segment in image.segments] or [np.zeros_like(frame.masks[0])]
        assert np.array_equal(masks[0], frame.masks[0])
    assert len(read_davis(tmp_path / "davis")[2].segments) == 1


def test_both_directions_are_written_in_the_order_of_frames(folder: Path, tmp_path: Path) -> None:
    video = Model(tiny_model()).video(folder)
    video.add(frame=2, object=1, box=BOX)

    video.export(tmp_path / "out", "coco", both=True)

    images = read_coco(tmp_path / "out" / "annotations.json")
    assert [image.name for image in images] == [f"img_{7 * index}.png" for index in range(FRAMES)]


def test_several_formats_have_a_folder_each(video: Video, tmp_path: Path) -> None:
    files = video.export(tmp_path / "out", ["davis", "overlay", "coco"], reverse=True, start=2)
    video.export(tmp_path / "davis", "davis", reverse=True, start=2)

    assert stems(files) == [
        "img_0.png", "img_7.png", "img_14.png", "overlay.mp4", "annotations.json",
    ]  # fmt: skip
    assert {file.parent.name for file in files} == {"davis", "overlay", "coco"}
    for file in (tmp_path / "davis").iterdir():
        assert (tmp_path / "out" / "davis" / file.name).read_bytes() == file.read_bytes()
    with open_frames(tmp_path / "out" / "overlay" / "overlay.mp4") as written:
        assert written.length == 3


@pytest.mark.parametrize(
    ("path", "format", "message"),
    [
        ("a.mp4", ["davis", "overlay"], "several formats need a folder"),
        ("out", [], "no format to write"),
        ("out", ["davis", "jsonl"], "not written from Python"),
        ("out", None, "does not say what to write"),
        ("out", "overlay", "does not say what to write"),
        ("a.mp4", "jsonl", "not written from Python"),
        ("a.xml", "coco", "cannot hold the format coco"),
        ("a.mp4", "coco", "cannot hold the format coco"),
    ],
)
def test_an_export_that_makes_no_sense_is_refused_before_tracking(
    video: Video, tmp_path: Path, path: str, format: str | list[str] | None, message: str
) -> None:
    with pytest.raises(OutputError, match=message):
        video.export(tmp_path / path, format)
    assert not list(tmp_path.glob("[ao]*"))


def test_an_object_keeps_its_number_and_colour_when_others_go(video: Video) -> None:
    video.add(frame=0, object="dog", box=OTHER)
    before = next(video.track())
    video.remove("cup")
    video.add(frame=0, object="cat", box=BOX)
    after = next(video.track())

    assert [s.object_id for s in before.segments] == [1, 2]
    assert {s.label: s.object_id for s in after.segments} == {"dog": 2, "cat": 3}
    inside = after.mask("dog")
    expected = overlay(video.source.frame(0), inside[None], object_ids=[2])
    inner = after.mask("dog") & ~after.mask("cat")
    assert np.array_equal(after.drawn()[inner], expected[inner])
    assert np.array_equal(after.overlay()[inner], expected[inner])
    assert set(np.unique(after.labels())) <= {0, 2, 3}
    assert object_colour(2) != object_colour(1)
    video.add(frame=0, object="cup", box=BOX)
    assert video.numbers == {"cup": 1, "dog": 2, "cat": 3}


def test_a_saved_session_keeps_the_numbers(video: Video, tmp_path: Path, folder: Path) -> None:
    video.add(frame=0, object="dog", box=OTHER)
    video.remove("cup")
    video.save(tmp_path / "session.safetensors")

    again = Model(tiny_model()).resume(tmp_path / "session.safetensors", source=folder)

    assert again.numbers == {"cup": 1, "dog": 2}


def test_a_frame_saves_and_shows_itself(video: Video, tmp_path: Path) -> None:
    frame = next(video.track())
    assert frame.image is None

    frame.save(tmp_path / "mask.png")
    frame.save(tmp_path / "frame.jpg")
    frame.save(tmp_path / "frame.xml", label=["mug"])
    frame.save(tmp_path / "labels.txt")

    assert np.array_equal(read_label_image(tmp_path / "mask.png") > 0, frame.masks[0])
    assert read_image(tmp_path / "frame.jpg").shape == (*video.size_hw, 3)
    assert 'label="mug"' in (tmp_path / "frame.xml").read_text()
    assert (tmp_path / "classes.txt").read_text() == "cup\n"
    shown = frame._repr_png_()
    assert shown is not None
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(shown))), frame.overlay())
    assert np.array_equal(np.asarray(frame), frame.masks)
    again = pickle.loads(pickle.dumps(frame))
    assert (again.name, again.source) == ("img_0.png", None)
    assert np.array_equal(again.masks, frame.masks)


def test_a_list_of_labels_names_each_object(video: Video) -> None:
    video.add(frame=0, object="dog", box=OTHER)
    frame = next(video.track())

    assert [s.label for s in frame.segmented_image(["a", "b"]).segments] == ["a", "b"]
    with pytest.raises(OptionError, match="one label for each object"):
        frame.segmented_image(["a"])


def test_progress_counts_the_frames(video: Video) -> None:
    seen: list[tuple[int, int]] = []

    for _ in video.track(both=True, start=1, progress=lambda *done: seen.append(done)):
        pass

    assert seen == [(done, FRAMES) for done in range(1, FRAMES + 1)]


def test_a_notebook_has_a_player_with_what_is_known(video: Video, folder: Path) -> None:
    plain = Model(tiny_model()).video(folder)._repr_html_()
    shown = video._repr_html_()
    for _ in video.track(end=1):
        pass

    assert plain is not None
    assert shown is not None
    assert shown.startswith("<video")
    assert shown[:5000] != plain[:5000]
    assert [len(video.known(frame)) for frame in range(FRAMES)] == [1, 1, 1, 0]
    assert np.array_equal(video.known(0).masks[0], next(video.track()).masks[0])


def test_a_video_that_cannot_be_read_again_is_shown_as_text() -> None:
    frames = (scenes.frame(index) for index in range(FRAMES))

    assert Model(tiny_model()).video(frames)._repr_html_() is None
