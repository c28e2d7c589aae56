"""The table of formats: every entry is written, read back, and refused where it does not fit."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import OptionError, OutputError
from samgraph.formats import (
    FORMATS,
    IMAGE_FORMATS,
    Format,
    ImageFormat,
    SegmentedImage,
    WriteOptions,
    find_format,
    format_for,
    read_coco,
    read_cvat,
    read_davis_frame,
    read_label_studio,
    read_labelme,
    read_yolo,
    write,
)
from samgraph.formats.sam import from_sam_dicts
from samgraph.jobs.images import ImageOutput, OutputOptions
from samgraph.jobs.journal import JOURNAL
from tests.formats.scenes import RING, ring_scene, same_masks, scene


def with_pixels(image: SegmentedImage) -> SegmentedImage:
    pixels = np.full((*image.size_hw, 3), 200, np.uint8)
    return SegmentedImage(image.name, image.size_hw, image.segments, pixels)


IMAGES = [with_pixels(scene()), with_pixels(ring_scene())]


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_every_format_writes_into_a_folder(name: str, tmp_path: Path) -> None:
    written = write(name, tmp_path, IMAGES)

    assert sorted(written) == sorted(tmp_path.iterdir())
    entry = FORMATS[name]
    if entry.file is not None:
        assert [path.name for path in written] == [entry.file]
    else:
        suffix = entry.suffixes[0]
        names = {path.name for path in written} - {entry.class_file}
        assert names == {f"cat{suffix}", f"ring{suffix}"}


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_a_missing_folder_is_an_output_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write(name, tmp_path / "none", IMAGES)


def test_what_is_encoded_is_what_the_readers_read(tmp_path: Path) -> None:
    """Annotations of the ring, through the table and back."""
    ring = IMAGES[1]

    def file(name: str) -> Path:
        entry = FORMATS[name]
        path = tmp_path / f"{name}{entry.suffixes[0]}"
        path.write_bytes(entry.encode([ring]))
        return path

    assert same_masks(read_coco(file("coco"))[0], ring)
    assert same_masks(read_cvat(file("cvat"))[0], ring)
    assert same_masks(read_label_studio(file("label-studio"))[0], ring)
    assert same_masks(read_labelme(file("labelme")), ring)
    assert same_masks(read_yolo(file("yolo"), ring.size_hw), ring)
    assert np.array_equal(read_davis_frame(file("davis")).segments[0].mask, RING)
    (sam,) = json.loads(file("sam").read_text())
    assert np.array_equal(from_sam_dicts(sam["masks"])[0].mask, RING)
    (outlines,) = json.loads(file("polygons").read_text())
    assert outlines["masks"][0]["label"] == "ring"


def test_pictures_show_the_mask() -> None:
    ring = IMAGES[1]

    mask, cut, drawn = (
        np.asarray(Image.open(io.BytesIO(FORMATS[name].encode([ring], suffix=".png"))))
        for name in ("png", "cutout", "overlay")
    )

    assert np.array_equal(mask, RING * np.uint8(255))
    assert np.array_equal(cut[..., 3] > 0, RING)
    assert np.array_equal((drawn != 200).any(-1), RING)


@pytest.mark.parametrize("name", ["coco", "cvat", "label-studio", "labelme"])
def test_a_tolerance_gives_polygons_and_a_label_names_every_segment(name: str) -> None:
    entry = FORMATS[name]

    masks = entry.encode([IMAGES[0]], WriteOptions(label="thing"))
    polygons = entry.encode([IMAGES[0]], WriteOptions(label="thing", tolerance=1.0))

    assert masks != polygons
    assert len(polygons) > 100
    for data in (masks, polygons):
        assert b"thing" in data
        assert b"dog" not in data


def test_classes_are_numbered_alike_in_every_file_of_a_folder(tmp_path: Path) -> None:
    write("yolo", tmp_path, IMAGES)

    classes = (tmp_path / "classes.txt").read_text(encoding="utf-8").splitlines()
    (ring,) = (tmp_path / "ring.txt").read_text().splitlines()
    assert classes[int(ring.split()[0])] == "ring"
    assert classes[0] == "cat"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.png", "png"),
        ("a.JPG", "overlay"),
        ("a.webp", "overlay"),
        ("a.json", "coco"),
        ("a.xml", "cvat"),
        ("a.txt", "yolo"),
    ],
)
def test_a_suffix_implies_a_format(path: str, name: str) -> None:
    assert format_for(path).name == name


def test_no_suffix_implies_two_formats() -> None:
    implied = [suffix for entry in FORMATS.values() for suffix in entry.implied_by]

    assert len(implied) == len(set(implied))
    for entry in FORMATS.values():
        assert set(entry.implied_by) <= set(entry.suffixes)


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("a.gif", None, "does not say what to write"),
        ("a.json", "cvat", "cannot hold the format cvat"),
        ("a.xml", "label-studio", "cannot hold the format label-studio"),
        ("a.jsonl", "jsonl", "cannot hold the format jsonl"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(path: str, name: str | None, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        format_for(path, name)


def test_an_unknown_format_lists_those_there_are(tmp_path: Path) -> None:
    for call in (lambda: find_format("voc"), lambda: write("voc", tmp_path, [])):
        with pytest.raises(OptionError, match="there is no format `voc`") as caught:
            call()
        assert "label-studio" in str(caught.value.expected)


def test_formats_of_videos_do_not_hold_images() -> None:
    with pytest.raises(OutputError, match="jsonl holds videos, not images"):
        FORMATS["jsonl"].encode(IMAGES)


def test_formats_that_show_the_image_need_its_pixels() -> None:
    for entry in FORMATS.values():
        if entry.needs_pixels:
            with pytest.raises(OutputError, match="not available"):
                entry.encode([ring_scene()])
        elif entry.encoder is not None:
            assert entry.encode([ring_scene()])


def test_the_names_for_type_checkers_are_those_of_the_table() -> None:
    assert get_args(ImageFormat) == IMAGE_FORMATS
    assert FORMATS["jsonl"].video_file == JOURNAL


def test_a_new_entry_is_all_that_a_format_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guide of ARCHITECTURE.md, done: rows of label and area."""

    def rows(images: Sequence[SegmentedImage], suffix: str, options: WriteOptions) -> bytes:
        lines = [f"{s.label},{s.area}" for image in images for s in image.segments]
        return "\n".join(lines).encode()

    entry = Format("rows", "label and area", (".csv",), rows, file="rows.csv", implied_by=(".csv",))
    monkeypatch.setitem(FORMATS, "rows", entry)

    assert format_for("areas.csv") is entry
    assert write("rows", tmp_path, IMAGES) == [tmp_path / "rows.csv"]
    assert (tmp_path / "rows.csv").read_text().splitlines()[-1] == "ring,12"
    output = ImageOutput(OutputOptions("out/", "rows"), ["a.jpg"], "png")
    assert output.format is entry
