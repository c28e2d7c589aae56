"""Tracking jobs: which frames, which numbers, and the files of a run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError
from samgraph.formats import FORMATS, WriteOptions, read_coco, read_davis_frame, read_yolo
from samgraph.jobs.journal import Journal, frame_record
from samgraph.jobs.prompts import FramePrompt
from samgraph.jobs.track import FrameRange, TrackJob
from samgraph.jobs.track_output import ObjectNames, TrackOutput
from samgraph.media.video.frames import open_frames
from samgraph.media.video.source import Damage
from samgraph.predict.video.result import FrameResult, ObjectResult

SIZE_HW = (6, 8)
CLICK = FramePrompt(((1.0, 2.0),), (1,))


@pytest.mark.parametrize(
    ("given", "frames"),
    [
        (FrameRange(), [2, 3, 4]),
        (FrameRange(start=1), [1, 2, 3, 4]),
        (FrameRange(end=3), [2, 3]),
        (FrameRange(end=99), [2, 3, 4]),
        (FrameRange(reverse=True), [3, 2, 1, 0]),
        (FrameRange(start=4, end=2, reverse=True), [4, 3, 2]),
        (FrameRange(both=True), [2, 3, 4, 1, 0]),
        (FrameRange(start=3, end=3, both=True), [3, 2, 1, 0]),
    ],
)
def test_a_range_is_frames_in_tracking_order(given: FrameRange, frames: list[int]) -> None:
    assert given.frames([3, 2], 5) == frames


def test_both_directions_are_not_also_reverse() -> None:
    with pytest.raises(OptionError, match="both directions"):
        FrameRange(reverse=True, both=True)


def job(*names: int | str, **options: Any) -> TrackJob:
    return TrackJob("clip.mp4", {(name, 0): CLICK for name in names}, Path("out"), **options)


def test_objects_named_by_text_get_the_free_numbers() -> None:
    assert job("cup", 2, "dog", 1).numbers == {"cup": 3, 2: 2, "dog": 4, 1: 1}


def test_a_job_is_checked_when_it_is_made() -> None:
    with pytest.raises(OptionError, match="there is no format `voc`"):
        job(1, formats=("davis", "voc"))
    with pytest.raises(OptionError, match="object `0` does not fit in a palette image"):
        job(0, formats=("coco", "davis"))
    assert job(0, formats=("coco",)).numbers == {0: 0}


def result(index: int, *, is_present: bool = True) -> FrameResult:
    """Object `cup` in the left half of a frame, or absent."""
    low = np.full((4, 4), -9, np.float32)
    low[:, :2] = 9
    score = np.array([1.0 if is_present else -1.0], np.float32)
    cup = ObjectResult("cup", score, np.array([0.75], np.float32), logits=low)
    pixels = np.full((*SIZE_HW, 3), 100 + index, np.uint8)
    return FrameResult(index, None, SIZE_HW, (cup,), image=pixels)


def run(tmp_path: Path, *names: str, write: WriteOptions | None = None) -> Path:
    """Two frames in each format; the object is absent on the second."""
    folder = tmp_path / "out"
    folder.mkdir()
    formats = [FORMATS[name] for name in names]
    output = TrackOutput(folder, formats, ObjectNames({"cup": 1}), write or WriteOptions())
    journal = Journal(folder / "frames.jsonl")
    frames = [result(0), result(1, is_present=False)]
    for frame in frames:
        output.write_frame(frame)
        journal.append(frame_record(frame, Damage()))
    pictures = [frame.image for frame in frames if frame.image is not None]
    with open_frames(pictures) as source:
        output.finish(journal, source)
    output.close()
    journal.close()
    return folder


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"overlay"}))
def test_every_format_of_the_table_is_written(name: str, tmp_path: Path) -> None:
    folder = run(tmp_path, name)

    files = {path.name for path in folder.iterdir()} - {"frames.jsonl"}
    entry = FORMATS[name]
    suffix = entry.suffixes[0]
    if entry.video_file is not None:
        assert files == {entry.video_file} - {"frames.jsonl"}
    elif entry.has_object_folders:
        assert files == {"001"}
        assert {path.name for path in (folder / "001").iterdir()} == {"00000.png", "00001.png"}
    elif entry.has_file_per_mask:
        assert files == {f"00000_1{suffix}", f"00001_1{suffix}"}
    else:
        assert files - {entry.class_file} == {f"00000{suffix}", f"00001{suffix}"}


def test_masks_and_labels_are_those_of_the_results(tmp_path: Path) -> None:
    folder = run(tmp_path, "davis", "coco", "yolo")

    mask = result(0).masks[0]
    first, second = read_coco(folder / "coco" / "annotations.json")
    assert np.array_equal(first.segments[0].mask, mask)
    assert (first.segments[0].label, first.segments[0].object_id) == ("cup", 1)
    assert second.segments == ()
    assert np.array_equal(read_davis_frame(folder / "davis" / "00000.png").segments[0].mask, mask)
    assert read_davis_frame(folder / "davis" / "00001.png").segments == ()
    (segment,) = read_yolo(folder / "yolo" / "00000.txt", SIZE_HW).segments
    assert segment.label == "cup"


def test_only_formats_that_show_the_frame_need_it(tmp_path: Path) -> None:
    needs = {
        name
        for name, entry in FORMATS.items()
        if TrackOutput(tmp_path, [entry], ObjectNames({1: 1}), WriteOptions()).needs_pixels
    }

    assert needs == {"cutout"}  # the overlay is made from the source at the end


def test_what_a_killed_run_left_is_removed_and_empty_folders_too(tmp_path: Path) -> None:
    formats = [FORMATS["davis"], FORMATS["coco"]]
    for name in ("davis", "coco"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".00000.png.abc.part").write_bytes(b"half")
    (tmp_path / "davis" / "00000.png").touch()

    TrackOutput(tmp_path, formats, ObjectNames({1: 1}), WriteOptions()).close()

    assert [path.relative_to(tmp_path) for path in sorted(tmp_path.rglob("*"))] == [
        Path("davis"),
        Path("davis/00000.png"),
    ]
