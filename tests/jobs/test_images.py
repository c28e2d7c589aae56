"""Work on many images: where results go, and what happens to those that fail."""

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from samgraph.errors import ImageError, OutputError, SamgraphError
from samgraph.formats import WriteOptions, read_coco
from samgraph.formats.segment import Segment
from samgraph.jobs.images import STREAM, ImageOutput, OutputOptions, run_images
from samgraph.predict.output import Picture, Segmentation
from tests.formats.scenes import RING


class Rings(Segmentation):
    """Two masks; pictures show the first."""

    def __init__(self, name: str) -> None:
        pixels = np.full((*RING.shape, 3), 9, np.uint8)
        self.picture = Picture(name, (RING.shape[0], RING.shape[1]), pixels)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return Segment.from_mask(RING), Segment.from_mask(~RING)

    @property
    def chosen(self) -> tuple[Segment, ...]:
        return self.segments[:1]


@dataclass
class Log:
    """A report that keeps its calls."""

    lines: list[str] = field(default_factory=list)

    def done(self, source: str, result: Segmentation, files: list[Path], seconds: float) -> None:
        assert seconds >= 0
        self.lines.append(f"{source}: {' '.join(map(str, files))}")

    def failed(self, source: str, error: SamgraphError) -> None:
        self.lines.append(f"{source}: {error.what}")


def work(source: str) -> Rings:
    if source == "bad":
        raise ImageError("bad image")
    return Rings(source)


def run(sources: list[str], options: OutputOptions, default: str = "png") -> tuple[Log, list[Path]]:
    log = Log()
    files = run_images(sources, work, ImageOutput(options, sources, default), log)
    return log, files


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_image_that_fails_is_reported_and_the_rest_is_done() -> None:
    log, shared = run(["a.jpg", "bad", "b.jpg"], OutputOptions("out/"))

    assert log.lines == ["a.jpg: out/a.png", "bad: bad image", "b.jpg: out/b.png"]
    assert shared == []


def test_a_joined_file_is_written_after_an_interruption() -> None:
    def interrupted(source: str) -> Rings:
        if source == "b.jpg":
            raise KeyboardInterrupt
        return Rings(source)

    output = ImageOutput(OutputOptions("all.json"), ["a.jpg", "b.jpg"], "png")
    with pytest.raises(KeyboardInterrupt):
        run_images(["a.jpg", "b.jpg"], interrupted, output, Log())

    assert [image.name for image in read_coco("all.json")] == ["a.jpg"]


def test_all_masks_or_those_chosen() -> None:
    run(["a.jpg"], OutputOptions("best.json"))
    run(["a.jpg"], OutputOptions("all.json", all_masks=True))
    log, _ = run(["a.jpg"], OutputOptions("m.png", all_masks=True))

    assert [len(read_coco(name)[0].segments) for name in ("best.json", "all.json")] == [1, 2]
    assert log.lines == ["a.jpg: m_1.png m_2.png"]


def test_no_output_names_files_after_the_images() -> None:
    names = {
        name: run(["a.jpg"], OutputOptions(format=name))
        for name in ("png", "cutout", "overlay", "davis", "labelme", "yolo", "cvat", "sam")
    }

    written = {name: [log.lines[0][7:], *map(str, files)] for name, (log, files) in names.items()}
    assert written == {
        "png": ["a_mask.png"],
        "cutout": ["a_cutout.png"],
        "overlay": ["a_overlay.jpg"],
        "davis": ["a_davis.png"],
        "labelme": ["a.json"],
        "yolo": ["a.txt"],
        "cvat": ["", "a.xml"],
        "sam": ["", "a.json"],
    }
    _, shared = run(["a.jpg", "b.jpg"], OutputOptions(format="cvat"))
    assert shared == [Path("annotations.xml")]


def test_a_folder_of_yolo_labels_has_a_class_file() -> None:
    write = WriteOptions(label="cat")

    _, shared = run(["a.jpg", "b.jpg"], OutputOptions("out", "yolo", write))

    assert shared == [Path("out/classes.txt")]
    assert Path("out/classes.txt").read_text() == "cat\n"


@pytest.mark.parametrize(("name", "ending"), [("coco", b"}\n"), ("png", b"IEND\xaeB`\x82")])
def test_a_stream_gets_the_bytes_of_one_file(name: str, ending: bytes) -> None:
    stream = io.BytesIO()
    output = ImageOutput(OutputOptions(STREAM, name), ["a.jpg"], "png", stream)

    assert run_images(["a.jpg"], work, output, Log()) == []

    assert stream.getvalue().endswith(ending)


@pytest.mark.parametrize(
    ("options", "sources", "message"),
    [
        (OutputOptions("a.png"), ["a.jpg", "b.jpg"], "has room for one image as png"),
        (OutputOptions("a.txt"), ["a.jpg", "b.jpg"], "has room for one image as yolo"),
        (OutputOptions("a.xyz"), ["a.jpg"], "does not say what to write"),
        (OutputOptions("a.png", "cvat"), ["a.jpg"], "cannot hold the format cvat"),
        (OutputOptions("out"), ["a.jpg"], "end it with a slash"),
        (OutputOptions(STREAM), ["a.jpg"], "no stream to write to"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_work(
    options: OutputOptions, sources: list[str], message: str
) -> None:
    with pytest.raises(OutputError, match=message):
        ImageOutput(options, sources, "png")


def test_a_stream_has_room_for_one_image() -> None:
    with pytest.raises(OutputError, match="standard output takes one image as png"):
        ImageOutput(OutputOptions(STREAM), ["a.jpg", "b.jpg"], "png", io.BytesIO())


def test_sources_and_earlier_results_are_not_overwritten() -> None:
    Path("a_1.png").touch()
    Path("a.png").touch()

    own, _ = run(["a.png"], OutputOptions("./a.png"))
    mask, _ = run(["a_1.png"], OutputOptions("a.png", all_masks=True))
    same, _ = run(["x/a.jpg", "y/a.jpg"], OutputOptions("out/"))

    assert own.lines == ["a.png: `a.png` is one of the images"]
    assert mask.lines == ["a_1.png: `a_1.png` is one of the images"]
    assert same.lines[1] == "y/a.jpg: `out/a.png` holds the result of another image"
    assert Path("a.png").read_bytes() == Path("a_1.png").read_bytes() == b""
