"""Hostile images: only success or one clear `ImageError`, quickly and in little memory."""

import io
import json
import os
import resource
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import ImageError
from samgraph.media.image.reading import image_size, read_image
from tests.media.hostile_images import bad_files, good_files

GOOD, BAD = good_files(), bad_files()
MUTANTS = int(os.environ.get("SAMGRAPH_MUTANTS", "3000"))


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_file_is_one_clear_error(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(BAD[name])

    start = time.process_time()
    with pytest.raises(ImageError) as caught:
        read_image(path)

    assert time.process_time() - start < 1
    assert "photo.png" in caught.value.what
    assert "0x" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_good_file_is_read(name: str) -> None:
    pixels = read_image(GOOD[name])

    assert pixels.dtype == np.uint8
    assert pixels.shape == (*image_size(GOOD[name]), 3)


def test_there_are_enough_seeds() -> None:
    assert len(BAD) >= 48


def test_mutants_are_images_or_image_errors() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.media.hostile_images", str(MUTANTS), "1"],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "PYTHONPATH": "src"},
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""  # libtiff, beneath Pillow, would write what it finds wrong
    report = json.loads(done.stdout)
    allowed = {
        f"{read} {way}" for read in ("image_size", "read_image") for way in ("fine", "refused")
    }
    assert set(report["outcome"]) <= allowed, report
    assert sum(report["outcome"].values()) == 2 * MUTANTS
    assert report["slowest"] < 1, report


def test_too_many_pixels_are_refused_from_the_header_alone(tmp_path: Path) -> None:
    # A real picture of 169 megapixels, a bit each: 21 MB to decode, 507 MB as RGB.
    side = 13_000
    rows = zlib.compress(bytes((side // 8 + 1) * side), 1)
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")]
    path = tmp_path / "poster.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in parts
        )
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()

    start = time.process_time()
    with pytest.raises(ImageError) as caught:
        read_image(path)
    took = time.process_time() - start

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 0.05
    assert peak < 50e6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert str(caught.value) == (
        f"`{path}` has 13,000 x 13,000 pixels\n  got:      169.0 megapixels\n"
        "  expected: at most 64\n"
        "  hint: make it smaller, or pass `max_pixels=169_000_000`"
    )


def test_a_gigapixel_header_is_refused_as_fast() -> None:
    start = time.process_time()
    with pytest.raises(ImageError, match="more pixels than are ever decoded"):
        read_image(BAD["gigapixels png"])

    assert time.process_time() - start < 0.05


def test_places_that_hold_no_image_are_named(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    cases: list[tuple[Any, str]] = [
        (tmp_path, "is a folder"),
        (tmp_path / "none.png", "does not exist"),
        (fifo, "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        ("nul\0byte.png", "cannot be opened"),
        ("a" * 5000, "cannot be opened"),
        ("https://example.org/cat.png", "is an address, and images are not fetched"),
        ("file:///etc/passwd", "is an address, and images are not fetched"),
        ("data:image/png;base64,AAAA", "is an address, and images are not fetched"),
    ]
    for source, message in cases:
        for read in (read_image, image_size):
            with pytest.raises(ImageError, match=message) as caught:
                read(source)
            assert len(str(caught.value)) < 500


def test_a_file_without_permission_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(GOOD["png rgb"])
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")

    with pytest.raises(ImageError, match="cannot be opened"):
        read_image(path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (io.StringIO("text"), "is open as text"),
        (io.BytesIO(), "is empty"),
        (b"", "is empty"),
        (None, "this is not an image"),
        (17, "this is not an image"),
        ([[1, 2]], "this is not an image"),
    ],
)
def test_things_that_are_no_image_are_refused(source: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        read_image(source)


def test_a_stream_that_fails_is_an_image_error() -> None:
    class Broken:
        def read(self, _: int = -1) -> bytes:
            raise OSError("the wire was cut")

    with pytest.raises(ImageError, match="the wire was cut"):
        read_image(Broken())  # type: ignore[arg-type]  # that is what is tested


def test_control_characters_in_a_name_do_not_reach_the_message() -> None:
    with pytest.raises(ImageError) as caught:
        read_image("evil\x1b[2J\n\rname.png")

    assert r"`evil\x1b[2J\n\x0dname.png` does not exist" in str(caught.value)
