"""Sources that are not video files: folders, lists, arrays and iterators."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import samgraph
from samgraph.errors import OptionError, VideoError
from samgraph.media.image.opening import ImageSource
from samgraph.media.image.reading import write_image
from samgraph.media.video.frames import (
    Damage,
    FrameIterator,
    FrameList,
    FrameSource,
    ImageFolder,
    MissingFrameError,
    natural_key,
    open_frames,
)
from tests.media.video_making import HEIGHT, WIDTH, Rgb, number_in, picture


def write_pictures(folder: Path, names: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        write_image(folder / name, picture(number))
    return folder


def numbers(source: FrameSource) -> list[int]:
    return [number_in(source.frame(index)) for index in range(source.length or 0)]


def test_a_folder_of_images_is_read_in_natural_order(tmp_path: Path) -> None:
    names = ["1.png", "2.png", "10.jpg", "Frame 3.png", "frame 20.webp", "frame 100.bmp"]
    folder = write_pictures(tmp_path / "frames", names)

    with open_frames(folder) as source:
        assert isinstance(source, ImageFolder)
        assert [path.name for path in source.paths] == names
        assert numbers(source) == list(range(6))
        assert source.name == "frames"
        assert source.size_hw == (HEIGHT, WIDTH)
        assert source.length == 6
        assert source.time(3) is None
        assert source.damage == Damage(found=6, decoded=6)


def test_only_images_count_and_any_name_will_do(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "mixed", ["ab cd.JPG".lower(), "ü (2).png", "z.tif"])
    (folder / "ab cd.jpg").rename(folder / "AB CD.JPG")
    (folder / "notes.txt").write_text("not a frame", encoding="utf-8")
    (folder / "Thumbs.db").write_bytes(b"\xff\xd8\xff not a frame")
    (folder / ".hidden.png").write_bytes(b"\x89PNG")
    (folder / "folder.png").mkdir()
    (folder / "no suffix").write_bytes((folder / "z.tif").read_bytes())
    (folder / "frame.0001").write_bytes((folder / "AB CD.JPG").read_bytes())
    (folder / "readme").write_text("not a frame", encoding="utf-8")

    source = open_frames(folder)

    assert isinstance(source, ImageFolder)
    names = [path.name for path in source.paths]
    assert names == ["AB CD.JPG", "frame.0001", "no suffix", "z.tif", "ü (2).png"]
    assert numbers(source) == [0, 0, 2, 2, 1]


def test_a_file_name_that_is_not_text_is_read(tmp_path: Path) -> None:
    write_image(tmp_path / "0.png", picture(0))
    os.rename(tmp_path / "0.png", os.fsencode(tmp_path) + b"/\xff\xfe.png")

    assert numbers(open_frames(tmp_path)) == [0]


def test_images_of_different_sizes_name_the_first_that_differs(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "sizes", ["0.png", "1.png", "2.png"])
    write_image(folder / "1.png", picture(1, 60, 90))

    with pytest.raises(VideoError) as raised:
        open_frames(folder)
    skipping = open_frames(folder, on_damage="skip")

    assert str(raised.value) == (
        f"`{folder}/1.png` has another size than the first frame\n"
        "  got:      90 x 60\n  expected: 80 x 48\n  hint: give frames of one size"
    )
    assert skipping.damage.missing == (1,)
    assert number_in(skipping.frame(2)) == 2
    with pytest.raises(MissingFrameError, match=r"1\.png"):
        skipping.frame(1)


def test_a_damaged_image_is_an_error_or_a_missing_frame(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "damaged", ["0.jpg", "1.jpg", "2.jpg", "3.jpg"])
    whole = (folder / "1.jpg").read_bytes()
    (folder / "1.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "3.jpg").write_bytes(b"not an image")

    with pytest.raises(VideoError, match=r"3\.jpg"):
        open_frames(folder)
    (folder / "3.jpg").write_bytes(whole)
    strict = open_frames(folder)
    (folder / "3.jpg").write_bytes(b"not an image")
    skipping = open_frames(folder, on_damage="skip")

    with pytest.raises(VideoError, match=r"1\.jpg"):
        strict.frame(1)
    for index in (1, 3):
        with pytest.raises(MissingFrameError, match=rf"{index}\.jpg"):
            skipping.frame(index)
    assert [number_in(skipping.frame(index)) for index in (0, 2)] == [0, 2]
    assert skipping.damage.missing == (1, 3)
    assert skipping.damage.decoded == 2
    assert skipping.damage.is_damaged


@pytest.mark.parametrize("names", [[], ["notes.txt", "more.txt"], [".hidden.png"]])
def test_a_folder_without_images_is_an_error(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"x")

    with pytest.raises(VideoError, match="holds no images"):
        open_frames(tmp_path)


def test_a_list_may_mix_arrays_images_bytes_and_paths(tmp_path: Path) -> None:
    write_image(tmp_path / "2.png", picture(2))
    write_image(tmp_path / "3.png", picture(3))
    encoded = (tmp_path / "3.png").read_bytes()
    items: list[ImageSource] = [
        picture(0),
        Image.fromarray(picture(1)),
        tmp_path / "2.png",
        encoded,
    ]

    for given_items in (items, tuple(items)):
        with open_frames(given_items) as source:
            assert isinstance(source, FrameList)
            assert numbers(source) == [0, 1, 2, 3]
            assert [number_in(source.frame(index)) for index in (3, 0, 2)] == [3, 0, 2]


def test_an_array_of_frames_is_a_list() -> None:
    source = open_frames(np.stack([picture(number) for number in range(5)]))

    assert source.length == 5
    assert numbers(source) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "holds no frames"),
        ([picture(0), np.zeros((4, 4, 3), np.uint8)], "frame 1 of the list of frames"),
        ([picture(0), "missing.png"], r"`missing\.png`"),
        ([picture(0), 3], "frame 1 of the list of frames"),
        ([np.zeros((3, 48, 80), np.uint8)], "frame 0 of the list of frames"),
        ([["a"]], "frame 0 of the list of frames"),
    ],
)
def test_a_bad_list_says_which_frame(items: list[Rgb], message: str) -> None:
    with pytest.raises(VideoError, match=message):
        open_frames(items)


def test_an_iterator_is_read_forward_and_keeps_a_few() -> None:
    taken: list[int] = []

    def camera() -> Iterator[Rgb]:
        buffer = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        for number in range(20):
            taken.append(number)
            buffer[:] = picture(number)
            yield buffer

    with open_frames(camera(), cache_frames=4) as source:
        assert isinstance(source, FrameIterator)
        assert taken == [0]
        assert source.length is None
        assert source.size_hw == (HEIGHT, WIDTH)
        assert number_in(source.frame(7)) == 7
        assert taken == list(range(8))
        assert [number_in(source.frame(index)) for index in (4, 7, 5, 8)] == [4, 7, 5, 8]
        with pytest.raises(VideoError, match="frame 4 of the iterator of frames has been dropped"):
            source.frame(4)
        assert number_in(source.frame(19)) == 19
        with pytest.raises(VideoError, match="has no frame 20"):
            source.frame(20)
        assert source.length == 20
        assert source.damage == Damage(found=20, decoded=20)


def test_what_an_iterator_raises_comes_out_as_it_is() -> None:
    def broken() -> Iterator[Rgb]:
        yield picture(0)
        raise ZeroDivisionError("the camera fell off")

    source = open_frames(broken())

    assert number_in(source.frame(0)) == 0
    with pytest.raises(ZeroDivisionError, match="fell off"):
        source.frame(1)


def test_a_bad_frame_from_an_iterator_is_named() -> None:
    items: list[ImageSource] = [picture(0), picture(1, 60, 90), "nothing.png"]
    source = open_frames(iter(items))

    with pytest.raises(VideoError, match="frame 1 of the iterator of frames has another size"):
        source.frame(1)
    with pytest.raises(VideoError, match="frame 1 of the iterator of frames cannot be used"):
        source.frame(1)


def test_an_iterator_without_frames_is_an_error() -> None:
    with pytest.raises(VideoError, match="gave no frames"):
        open_frames(iter([]))


def test_a_source_is_a_source_already() -> None:
    source = FrameList([picture(0)])

    assert open_frames(source) is source


@pytest.mark.parametrize("thing", [3, None, b"bytes", {"a": 1}, {1, 2}, picture(0), object()])
def test_what_is_no_video_is_an_error(thing: object) -> None:
    with pytest.raises(VideoError, match="this is not a video"):
        open_frames(thing)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("index", [-1, 2, 10**9, "0", None, 1.0])
def test_frames_that_do_not_exist_are_errors(index: int) -> None:
    source = FrameList([picture(0), picture(1)])

    with pytest.raises(VideoError):
        source.frame(index)


def test_one_image_is_not_a_video(tmp_path: Path) -> None:
    write_image(tmp_path / "cat.jpg", picture(0))

    with pytest.raises(VideoError, match=r"cat\.jpg. is one image, not a video"):
        open_frames(tmp_path / "cat.jpg")


def test_an_open_file_is_not_a_video(tmp_path: Path) -> None:
    with (
        (tmp_path / "a.mp4").open("wb+") as file,
        pytest.raises(VideoError, match="not a video"),
    ):
        open_frames(file)


def test_pyav_is_imported_only_when_a_video_is_opened() -> None:
    names = "file, frames, prefetch, writer"
    script = f"import sys; from samgraph.media.video import {names}; sys.exit('av' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(samgraph.__file__).parents[1])}

    assert subprocess.run([sys.executable, "-c", script], env=environment).returncode == 0


def test_a_window_must_hold_a_frame() -> None:
    with pytest.raises(OptionError):
        FrameIterator(iter([picture(0)]), window=0)


def test_too_many_pixels_are_refused() -> None:
    with pytest.raises(VideoError, match="pixels"):
        open_frames([picture(0)], max_pixels=100).frame(0)


@given(st.lists(st.integers(0, 10**6), min_size=1), st.sampled_from(["", "a", "Img 7_", "é-"]))
def test_numbers_in_names_sort_by_value(values: list[int], prefix: str) -> None:
    names = [f"{prefix}{value}.png" for value in values]

    ordered = sorted(names, key=natural_key)

    assert ordered == [f"{prefix}{value}.png" for value in sorted(values)]


def test_damage_is_told_in_one_line() -> None:
    damage = Damage(10, 8, 5, (3,), (1, 2), (4,), True)

    assert str(damage) == (
        "frame 3 cannot be decoded; 2 of 10 declared frames are not in the file;"
        " 2 frames from 1 on partly guessed by the decoder; frame 4 of another size"
    )
    assert str(Damage(is_cut_short=True)) == "the file is cut short"
    assert not Damage(5, None).is_damaged
