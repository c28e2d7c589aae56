import io
import os
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from samgraph.errors import ImageError, OutputError
from samgraph.media.image.reading import (
    encode_image,
    image_size,
    read_image,
    read_label_image,
    write_image,
    write_png,
)
from tests.media.hostile_images import repeated_scans

# Red, green, blue / white, grey, black: every turn and flip of it is different.
COLOURS = np.array(
    [
        [[255, 0, 0], [0, 255, 0], [0, 0, 255]],
        [[255, 255, 255], [128, 128, 128], [0, 0, 0]],
    ],
    np.uint8,
)


def file_of(image: Image.Image | NDArray[Any], kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def rotated(orientation: int) -> Image.Image:
    """COLOURS stored in such a way that the EXIF orientation makes them upright."""
    stored = {
        1: COLOURS,
        2: COLOURS[:, ::-1],
        3: COLOURS[::-1, ::-1],
        4: COLOURS[::-1],
        5: COLOURS.transpose(1, 0, 2),
        6: np.rot90(COLOURS),
        7: COLOURS[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(COLOURS, -1),
    }[orientation]
    return Image.fromarray(np.ascontiguousarray(stored))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_every_format_is_read_from_path_bytes_file_and_pillow(kind: str, tmp_path: Path) -> None:
    data = file_of(COLOURS, kind, **({"lossless": True} if kind == "WEBP" else {}))
    path = tmp_path / "wrong.name"
    path.write_bytes(data)

    sources: list[Any] = [str(path), path, data, bytearray(data), memoryview(data)]
    with path.open("rb") as file, Image.open(io.BytesIO(data)) as picture:
        for source in (*sources, file, io.BytesIO(data), picture):
            assert image_size(source) == (2, 3)
            assert np.array_equal(read_image(source), COLOURS)


def test_jpeg_is_read() -> None:
    flat = np.full((16, 24, 3), (200, 100, 50), np.uint8)

    assert np.abs(read_image(file_of(flat, "JPEG", quality=95)).astype(int) - flat).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"lossless": True} if kind == "WEBP" else {}
    data = file_of(rotated(orientation), kind, exif=exif, **lossless)

    assert np.array_equal(read_image(data), COLOURS)
    assert image_size(data) == (2, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_of_jpeg_is_applied(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    small = rotated(orientation)
    large = small.resize((16 * small.width, 16 * small.height), Image.Resampling.NEAREST)

    data = file_of(large, "JPEG", exif=exif, quality=100, subsampling=0)

    assert image_size(data) == (32, 48)
    difference = np.abs(read_image(data)[8::16, 8::16].astype(int) - COLOURS)
    assert difference.max() <= 3


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    grey = np.array([[0, 255, 256], [32768, 65280, 65535]], np.uint16)
    expected = np.array([[0, 0, 1], [128, 255, 255]], np.uint8)

    for kind in ("PNG", "TIFF"):
        read = read_image(file_of(grey, kind))
        assert np.array_equal(read, np.repeat(expected[:, :, None], 3, axis=2))
    assert np.array_equal(read_image(grey)[:, :, 0], expected)
    assert np.array_equal(read_image(Image.fromarray(grey.astype(np.int32)))[:, :, 0], expected)


def test_cmyk_becomes_rgb() -> None:
    cmyk = Image.new("CMYK", (8, 8), (0, 255, 255, 0))

    assert np.array_equal(read_image(cmyk)[0, 0], [255, 0, 0])
    jpeg = read_image(file_of(cmyk, "JPEG", quality=100))
    assert np.abs(jpeg[4, 4].astype(int) - [255, 0, 0]).max() <= 3
    assert np.array_equal(read_image(file_of(cmyk, "TIFF"))[0, 0], [255, 0, 0])


def test_alpha_is_dropped_and_not_blended() -> None:
    alpha = np.array([[0, 128, 255], [255, 0, 7]], np.uint8)
    rgba = np.dstack([COLOURS, alpha])

    assert np.array_equal(read_image(file_of(rgba)), COLOURS)
    assert np.array_equal(read_image(rgba), COLOURS)
    assert np.array_equal(read_image(Image.fromarray(COLOURS[:, :, 0]).convert("LA")), grey_red())
    assert np.array_equal(read_image(Image.fromarray(rgba).convert("RGBa"))[1, 0], [255] * 3)


def grey_red() -> NDArray[np.uint8]:
    return np.repeat(COLOURS[:, :, :1], 3, axis=2)


def test_a_palette_with_transparency_keeps_its_colours() -> None:
    palette = Image.fromarray(np.array([[0, 1, 2], [3, 4, 5]], np.uint8), "P")
    palette.putpalette(COLOURS.reshape(-1, 3).tobytes())

    assert np.array_equal(read_image(file_of(palette, transparency=0)), COLOURS)
    assert np.array_equal(read_image(file_of(palette, transparency=b"\0\x80\xff")), COLOURS)
    assert np.array_equal(read_image(file_of(palette, "GIF", transparency=1)), COLOURS)


def test_one_bit_and_grey_images_are_grey_rgb() -> None:
    bits = np.array([[True, False, True]])

    for source in (file_of(bits), file_of(bits, "TIFF"), bits, bits[:, :, None]):
        assert read_image(source)[0].tolist() == [[255] * 3, [0] * 3, [255] * 3]
    assert np.array_equal(read_image(file_of(COLOURS[:, :, 0])), grey_red())


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation_is_the_image(kind: str) -> None:
    first, second = Image.new("RGB", (4, 3), (255, 0, 0)), Image.new("RGB", (4, 3), (0, 0, 255))
    options = {"lossless": True} if kind == "WEBP" else {}

    data = file_of(first, kind, save_all=True, append_images=[second], **options)

    assert np.array_equal(read_image(data), np.asarray(first))


def test_arrays_of_many_kinds_are_images() -> None:
    unit = np.array([[0.0, 0.5, 1.0]])

    assert np.shares_memory(read_image(COLOURS), COLOURS)
    assert read_image(unit)[0, :, 0].tolist() == [0, 128, 255]
    assert read_image(unit.astype(np.float32)[:, :, None])[0, :, 0].tolist() == [0, 128, 255]
    assert np.array_equal(read_image(COLOURS.astype(np.int64)), COLOURS)
    assert read_image(COLOURS[:, ::-1]).flags.c_contiguous


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 8, 8)), "not an image\n  got:      [3, 8, 8]"),
        (np.zeros((8, 8, 2)), "not an image"),
        (np.zeros(8), "not an image"),
        (np.zeros((0, 8, 3), np.uint8), "impossible size\n  got:      8 x 0 pixels"),
        (np.zeros((1, 70000), np.uint8), "expected: sides of 1 to 65,535"),
        (np.full((2, 2), 200.0), "floats outside 0..1\n  got:      200 to 200"),
        (np.full((2, 2), np.nan), "floats outside 0..1"),
        (np.full((2, 2), 300), "outside 0..255"),
        (np.full((2, 2), "x"), "does not hold numbers"),
        (np.zeros((9000, 9000), np.bool_), "has 9,000 x 9,000 pixels"),
    ],
)
def test_other_arrays_are_refused_with_the_reason(array: NDArray[Any], message: str) -> None:
    with pytest.raises(ImageError) as caught:
        read_image(array)

    assert message in str(caught.value)


def test_the_pixel_limit_says_what_to_type() -> None:
    with pytest.raises(ImageError) as caught:
        read_image(COLOURS, max_pixels=5)

    assert str(caught.value) == (
        "the array has 3 x 2 pixels\n  got:      0.0 megapixels\n  expected: at most 5e-06\n"
        "  hint: make it smaller, or pass `max_pixels=6`"
    )


def test_a_stream_is_read_from_where_it_stands_and_put_back() -> None:
    stream = io.BytesIO(b"header" + file_of(COLOURS))
    stream.seek(6)

    assert np.array_equal(read_image(stream), COLOURS)
    assert stream.tell() == 6


def test_pillow_keeps_its_warnings_to_itself_and_ours_come_back() -> None:
    palette = Image.new("P", (4, 4))
    data = file_of(palette, transparency=bytes(range(200)))

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=read_image, args=(data,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        warnings.warn("ours", stacklevel=1)

    assert [str(warning.message) for warning in seen] == ["ours"]


@pytest.mark.parametrize("suffix", [".png", ".webp", ".bmp", ".tiff", ".jpg"])
def test_a_written_image_is_read_back(suffix: str, tmp_path: Path) -> None:
    flat = np.full((16, 24, 3), (200, 100, 50), np.uint8)

    write_image(tmp_path / f"out{suffix}", flat)

    assert os.listdir(tmp_path) == [f"out{suffix}"]
    assert np.abs(read_image(tmp_path / f"out{suffix}").astype(int) - flat).max() <= 3


def test_png_is_exact_for_every_kind_of_array(tmp_path: Path) -> None:
    alpha = np.dstack([COLOURS, COLOURS[:, :, 0]])
    for array in (COLOURS, alpha, COLOURS[:, :, 0], COLOURS[:, :, 0] > 0):
        write_png(tmp_path / "out", array)
        with Image.open(tmp_path / "out") as image:
            assert np.array_equal(np.array(image), array)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_metadata_never_reach_the_output(kind: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    secret = Image.fromarray(np.zeros((32, 32, 3), np.uint8))
    data = file_of(secret, "JPEG", exif=exif, comment=b"secret place", dpi=(300, 300))

    written = encode_image(read_image(data), kind)

    assert b"secret" in data
    assert b"secret" not in written
    with Image.open(io.BytesIO(written)) as image:
        assert not image.info.keys() & {"exif", "comment", "xmp", "icc_profile"}
        if kind == "PNG":
            assert not image.info


def test_writing_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not say which kind"):
        write_image(tmp_path / "out.xyz", COLOURS)
    with pytest.raises(ImageError, match="cannot be written as an image"):
        write_image(tmp_path / "out.png", COLOURS.astype(np.float32))
    with pytest.raises(ImageError, match="without pixels"):
        write_image(tmp_path / "out.png", np.zeros((0, 4), np.uint8))
    with pytest.raises(OutputError, match="cannot be written as JPEG"):
        write_image(tmp_path / "out.jpg", np.zeros((4, 4, 4), np.uint8))


def test_label_images_give_numbers_not_colours() -> None:
    palette = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "P")
    palette.putpalette(bytes(768))

    assert read_label_image(file_of(palette)).tolist() == [[0, 1, 2]]
    assert read_label_image(file_of(np.array([[7, 9]], np.uint8))).tolist() == [[7, 9]]
    assert read_label_image(file_of(np.array([[True, False]]))).tolist() == [[1, 0]]
    with pytest.raises(ImageError, match="one number per pixel"):
        read_label_image(file_of(COLOURS))


def test_a_progressive_picture_of_a_careful_encoder_is_read() -> None:
    """Twenty scans at any size, two hundred of a small one."""
    assert read_image(repeated_scans(3000, 2000, 11)).shape == (2000, 3000, 3)
    assert read_image(repeated_scans(200, 100, 190)).shape == (100, 200, 3)


def test_the_size_of_a_picture_is_told_without_looking_at_its_scans() -> None:
    assert image_size(repeated_scans(60, 40, 3000)) == (40, 60)


def test_scans_of_a_thumbnail_or_a_second_picture_do_not_count() -> None:
    plain = repeated_scans(60, 40, 1)
    inside = repeated_scans(16, 16, 500)[:60_000]
    segment = b"\xff\xe2" + (len(inside) + 2).to_bytes(2) + inside

    assert read_image(plain[:2] + segment + plain[2:] + inside).shape == (40, 60, 3)


def test_a_png_in_small_chunks_is_read() -> None:
    """As encoders write them that flush every kilobyte: ten thousand of them."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (2000, 1800, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    raw = buffer.getvalue()
    start, end = raw.index(b"IDAT") - 4, raw.rindex(b"IEND") - 4
    data = b"".join(idat_parts(raw[start:end]))
    pieces = [data[i : i + 1024] for i in range(0, len(data), 1024)]
    assert len(pieces) > 10_000
    body = b"".join(
        struct.pack(">I", len(p)) + b"IDAT" + p + struct.pack(">I", zlib.crc32(b"IDAT" + p))
        for p in pieces
    )

    assert np.array_equal(read_image(raw[:start] + body + raw[end:]), pixels)


def idat_parts(chunks: bytes) -> Iterator[bytes]:
    """The content of chunks that follow each other."""
    at = 0
    while at < len(chunks):
        length = int.from_bytes(chunks[at : at + 4])
        yield chunks[at + 8 : at + 8 + length]
        at += length + 12
