"""Videos written: what goes in comes out, and a failure leaves nothing behind."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import samgraph
from samgraph.errors import ImageError, OptionError, OutputError, VideoError
from samgraph.media.video.frames import open_frames
from samgraph.media.video.writer import VideoWriter
from tests.media.video_making import HEIGHT, WIDTH, number_in, picture

SOURCE = Path(samgraph.__file__).parents[1]
FULL_DISK = """
import resource, signal, sys
import numpy as np
from samgraph.errors import OutputError
from samgraph.media.video.writer import VideoWriter

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
noise = np.random.default_rng(0)
try:
    with VideoWriter(sys.argv[1], (64, 64), quality=1) as video:
        for _ in range(60):
            video.write(noise.integers(0, 256, (64, 64, 3), dtype=np.uint8))
except OutputError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["out.mp4", "OUT.MP4", "out.mov", "out.mkv"])
def test_frames_written_are_frames_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with VideoWriter(path, (HEIGHT, WIDTH), rate=30) as video:
        for number in range(12):
            video.write(picture(number))
        assert not path.exists()
        assert video.frames == 12

    assert os.listdir(tmp_path) == [name]
    with open_frames(path) as source:
        assert source.length == 12
        for number in range(12):
            frame = source.frame(number)
            assert number_in(frame) == number
            assert np.abs(frame.astype(int) - picture(number)).mean() < 8
        assert source.time(11) == pytest.approx(11 / 30, abs=2e-3)
        assert not source.damage.is_damaged


@pytest.mark.parametrize(("height", "width"), [(49, 81), (48, 81), (49, 80)])
def test_odd_sizes_are_padded_by_repeating_the_edge(
    tmp_path: Path, height: int, width: int
) -> None:
    with VideoWriter(tmp_path / "odd.mp4", (height, width)) as video:
        video.write(picture(5, height, width))

    with open_frames(tmp_path / "odd.mp4") as source:
        assert source.size_hw == (height + height % 2, width + width % 2)
        assert number_in(source.frame(0)) == 5


def test_times_are_kept(tmp_path: Path) -> None:
    times = [0.0, 0.04, 0.5, 0.5, 2.0]
    with VideoWriter(tmp_path / "times.mp4", (HEIGHT, WIDTH)) as video:
        for number, time in enumerate(times):
            video.write(picture(number), time)

    with open_frames(tmp_path / "times.mp4") as source:
        assert source.length == len(times)
        found = [source.time(index) for index in range(len(times))]
        assert found == [pytest.approx(time, abs=1e-3) for time in times]


def test_without_h264_another_encoder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    av = pytest.importorskip("av")
    monkeypatch.setattr(av, "codecs_available", av.codecs_available - {"libx264"})
    with VideoWriter(tmp_path / "out.mp4", (HEIGHT, WIDTH)) as video:
        for number in range(6):
            video.write(picture(number))

    with open_frames(tmp_path / "out.mp4") as source:
        assert [number_in(source.frame(number)) for number in range(6)] == list(range(6))


def test_an_exception_leaves_an_earlier_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    path.write_bytes(b"an earlier video")
    video = VideoWriter(path, (HEIGHT, WIDTH))
    video.write(picture(0))

    with pytest.raises(ZeroDivisionError), video:
        raise ZeroDivisionError

    assert path.read_bytes() == b"an earlier video"
    assert os.listdir(tmp_path) == ["out.mp4"]
    with pytest.raises(OutputError, match="has been closed"):
        video.write(picture(1))


def test_a_collected_writer_leaves_no_file(tmp_path: Path) -> None:
    video = VideoWriter(tmp_path / "out.mp4", (HEIGHT, WIDTH))
    video.write(picture(0))
    del video

    assert os.listdir(tmp_path) == []


def test_a_video_without_frames_is_an_error(tmp_path: Path) -> None:
    video = VideoWriter(tmp_path / "out.mp4", (HEIGHT, WIDTH))

    with pytest.raises(OutputError, match="no frame was written"):
        video.close()

    video.close()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    path.write_bytes(b"an earlier video")

    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"`{path}` cannot be written")
    assert path.read_bytes() == b"an earlier video"
    assert os.listdir(tmp_path) == ["out.mp4"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 20_000


def test_places_that_cannot_be_written_are_errors(tmp_path: Path) -> None:
    folder = tmp_path / "folder.mp4"
    folder.mkdir()
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "none" / "out.mp4", tmp_path / "file" / "out.mp4"):
        with pytest.raises(OutputError, match="cannot be written"):
            VideoWriter(path, (HEIGHT, WIDTH))
    with (
        pytest.raises(OutputError, match="cannot be written"),
        VideoWriter(folder, (HEIGHT, WIDTH)) as video,
    ):
        video.write(picture(0))

    assert sorted(os.listdir(tmp_path)) == ["file", "folder.mp4"]


@pytest.mark.parametrize("name", ["out", "out.png", "out.webm", "out.avi"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match="which kind of video"):
        VideoWriter(tmp_path / name, (HEIGHT, WIDTH))


def test_frames_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "out.mp4", (HEIGHT, WIDTH)) as video:
        for frame in (picture(0, 50, 80), picture(0)[:, :, :1], picture(0).astype(np.float32)):
            with pytest.raises(ImageError, match="does not fit the video"):
                video.write(frame)  # type: ignore[arg-type]  # what is tested
        with pytest.raises(OptionError, match="at a time"):
            video.write(picture(0), float("nan"))
        video.write(picture(0))


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 10**6])
def test_impossible_rates_are_refused(tmp_path: Path, rate: float) -> None:
    with pytest.raises(OptionError, match="rate"):
        VideoWriter(tmp_path / "out.mp4", (HEIGHT, WIDTH), rate=rate)


def test_a_missing_pyav_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)

    with pytest.raises(VideoError, match="PyAV"):
        VideoWriter(tmp_path / "out.mp4", (HEIGHT, WIDTH))
