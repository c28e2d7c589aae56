"""Video files: every frame by its number, whichever way it is reached."""

import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samgraph.errors import OptionError, VideoError
from samgraph.media.video.decoder import Decoder
from samgraph.media.video.file import VideoFile
from samgraph.media.video.frames import FrameSource, MissingFrameError, open_frames
from tests.media.video_making import (
    HEIGHT,
    KINDS,
    LENGTH,
    WIDTH,
    Rgb,
    make_kind,
    make_plain,
    make_video,
    number_in,
    picture,
)

MOST_GROWTH = 60 << 20


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


def resident() -> int:
    """Bytes of this process in memory, without what was freed and kept for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def all_frames(source: FrameSource) -> list[Rgb]:
    return [source.frame(index) for index in range(source.length or 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_numbered_in_the_order_shown(clips: Path, kind: str) -> None:
    with open_frames(make_kind(clips, kind)) as source:
        frames = all_frames(source)

        assert [number_in(frame) for frame in frames] == list(range(LENGTH))
        assert source.size_hw == (HEIGHT, WIDTH)
        assert source.name == kind
        assert not source.damage.is_damaged
        assert source.damage.decoded == source.damage.found == LENGTH
        assert source.time(0) == 0
        assert source.time(LENGTH - 1) == pytest.approx((LENGTH - 1) / 25, abs=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_any_order_of_access_gives_the_frames_of_a_forward_pass(clips: Path, kind: str) -> None:
    path = make_kind(clips, kind)
    with open_frames(path) as source:
        expected = all_frames(source)

    @settings(max_examples=12)
    @given(
        order=st.lists(st.integers(0, LENGTH - 1), max_size=12),
        cache_frames=st.integers(1, 6),
    )
    def check(order: list[int], cache_frames: int) -> None:
        with open_frames(path, cache_frames=cache_frames) as source:
            for index in order:
                np.testing.assert_array_equal(source.frame(index), expected[index])
            assert not source.damage.is_damaged

    check()


@pytest.mark.parametrize("kind", ["h264.mp4", "h264 in stored order.avi", "intra refresh.mp4"])
@pytest.mark.parametrize("cache_frames", [1, 7, None])
def test_a_pass_in_reverse_gives_the_same_frames(
    clips: Path, kind: str, cache_frames: int | None
) -> None:
    path = make_kind(clips, kind)
    with open_frames(path) as source:
        expected = all_frames(source)

    with open_frames(path, cache_frames=cache_frames) as source:
        for index in reversed(range(LENGTH)):
            np.testing.assert_array_equal(source.frame(index), expected[index])


def test_a_large_video_is_decoded_by_several_threads_to_the_same_frames(
    clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_kind(clips, "h264.mp4")
    with open_frames(path) as source:
        expected = all_frames(source)
    monkeypatch.setattr("samgraph.media.video.decoder._threads_for", lambda pixels: 3)

    with open_frames(path, cache_frames=3) as source:
        for index in (*range(LENGTH), 20, 21, 5, 39, 0):
            np.testing.assert_array_equal(source.frame(index), expected[index])


def test_frames_may_be_asked_for_by_several_threads_at_once(clips: Path) -> None:
    path = make_kind(clips, "h264.mp4")
    wrong: list[int] = []

    with open_frames(path, cache_frames=4) as source:

        def read(order: list[int]) -> None:
            wrong.extend(index for index in order if number_in(source.frame(index)) != index)

        orders = list(range(LENGTH)), list(range(LENGTH - 1, -1, -1)), list(range(0, LENGTH, 3))
        threads = [threading.Thread(target=read, args=(order,)) for order in orders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert not wrong


def test_an_interrupted_search_leaves_nothing_wrong(
    clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Decoder) -> list[tuple[int, Any]]:
        raise KeyboardInterrupt

    with open_frames(make_kind(clips, "h264.mp4"), cache_frames=2) as source:
        with monkeypatch.context() as patch:
            patch.setattr(Decoder, "step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                source.frame(30)

        assert [number_in(source.frame(index)) for index in (30, 31, 2)] == [30, 31, 2]
        assert not source.damage.is_damaged


def test_a_variable_frame_rate_gives_times_and_plain_numbers(tmp_path: Path) -> None:
    times = [0, 40, 50, 500, 520, 521, 3000, 3033, 9000, 9040]
    path = make_video(tmp_path / "variable.mkv", len(times), times=times)

    with open_frames(path) as source:
        assert [number_in(frame) for frame in all_frames(source)] == list(range(len(times)))
        assert [source.time(index) for index in range(len(times))] == [
            pytest.approx(time / 1000) for time in times
        ]


def test_frames_that_an_edit_list_cuts_off_are_not_counted(tmp_path: Path) -> None:
    times = [40 * number - 400 for number in range(LENGTH)]
    path = make_video(tmp_path / "trimmed.mp4", times=times)

    with open_frames(path, cache_frames=3) as source:
        assert source.length == LENGTH - 10
        assert [number_in(frame) for frame in all_frames(source)] == list(range(10, LENGTH))
        assert [number_in(source.frame(index)) for index in (25, 3, 12, 0)] == [35, 13, 22, 10]
        assert not source.damage.is_damaged


@pytest.mark.parametrize(
    ("rotation", "flips", "quarter_turns"),
    [(0, False, 0), (90, False, 1), (180, False, 2), (-90, False, 3), (0, True, 0), (45, False, 0)],
)
def test_rotation_and_mirroring_are_applied(
    tmp_path: Path, rotation: float, flips: bool, quarter_turns: int
) -> None:
    path = make_video(tmp_path / "rotated.mp4", 3, rotation=rotation, flips=flips)
    upright = np.rot90(picture(1), quarter_turns)
    expected = upright[:, ::-1] if flips else upright

    with open_frames(path) as source:
        frame = source.frame(1)

    assert source.size_hw == expected.shape[:2] == frame.shape[:2]
    assert np.abs(frame.astype(int) - expected).mean() < 12


@pytest.mark.parametrize(("height", "width"), [(49, 81), (50, 99), (51, 80), (16, 80)])
def test_odd_sizes_are_kept(tmp_path: Path, height: int, width: int) -> None:
    pictures = [picture(number, height, width) for number in range(4)]
    path = make_video(tmp_path / "odd.mkv", pictures, pixels="yuv444p")

    with open_frames(path) as source:
        assert source.size_hw == (height, width)
        for number in range(4):
            difference = np.abs(source.frame(number).astype(int) - pictures[number])
            assert difference.mean() < 6


def test_colours_follow_the_matrix_the_file_names(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    green = np.full((32, 32, 3), (20, 200, 40), np.uint8)
    with av.open(str(tmp_path / "high definition.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.height, stream.width, stream.pix_fmt = 32, 32, "yuv420p"
        stream.codec_context.colorspace = 1
        stream.codec_context.color_range = 1
        frame = av.VideoFrame.from_ndarray(green, format="rgb24")
        frame = frame.reformat(format="yuv420p", dst_colorspace="itu709", dst_color_range="MPEG")
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))

    with open_frames(tmp_path / "high definition.mkv") as source:
        assert np.abs(source.frame(0).astype(int) - green).max() <= 6


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    """A clip whose last five frames are twice as high and wide as its first five."""
    small = make_video(tmp_path / "small.mkv", 5, gop=5, bframes=0)
    large_pictures = [picture(n).repeat(2, axis=0).repeat(2, axis=1) for n in range(5, 10)]
    large = make_video(tmp_path / "large.mkv", large_pictures, gop=5, bframes=0)
    _join(tmp_path / "growing.mkv", small, large)
    return tmp_path / "growing.mkv"


def test_a_change_of_size_in_mid_stream_is_resized_to_the_first(growing: Path) -> None:
    with open_frames(growing) as source:
        frames = all_frames(source)

        assert source.size_hw == (HEIGHT, WIDTH)
        assert {frame.shape for frame in frames} == {(HEIGHT, WIDTH, 3)}
        assert [number_in(frame) for frame in frames] == list(range(10))
        assert source.damage.resized == (5, 6, 7, 8, 9)
        assert not source.damage.is_damaged


def test_a_frame_that_grows_beyond_the_limit_is_refused(growing: Path) -> None:
    with pytest.raises(VideoError, match="160 x 96 pixels"):
        open_frames(growing, max_pixels=2 * HEIGHT * WIDTH)


def _join(path: Path, *parts: Path) -> None:
    """Put the packets of several H.264 files behind each other, with their own headers."""
    av = pytest.importorskip("av")
    shift = 0
    with av.open(str(path), "w") as container:
        target = None
        for part in parts:
            with av.open(str(part)) as source:
                stream = source.streams.video[0]
                converter = av.bitstream.BitStreamFilterContext("h264_mp4toannexb", stream)
                if target is None:
                    target = container.add_stream_from_template(stream)
                packets = [p for q in source.demux(stream) for p in converter.filter(q) if p.size]
            for packet in packets:
                packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                packet.stream = target
                container.mux(_length_prefixed(av, packet, target))
            shift += 200


def _length_prefixed(av: Any, packet: Any, target: Any) -> Any:
    """A packet with start codes, as one with lengths: what Matroska holds."""
    units = bytes(packet).replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")[1:]
    copy = av.Packet(b"".join(len(unit).to_bytes(4) + unit for unit in units))
    copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
    copy.is_keyframe, copy.stream = packet.is_keyframe, target
    return copy


def test_memory_does_not_grow_with_the_video(tmp_path: Path) -> None:
    path = make_plain(tmp_path / "long.mp4", 2000, 240, 320)

    with open_frames(path) as source:
        source.frame(0)
        before = resident()
        for index in (*range(2000), *range(1999, 1700, -1), 5, 1500, 30):
            source.frame(index)
        growth = resident() - before

        assert growth < MOST_GROWTH
        assert source.damage.decoded == source.length == 2000


def test_the_measure_of_memory_sees_a_video_that_is_held_whole(tmp_path: Path) -> None:
    path = make_plain(tmp_path / "long.mp4", 1000, 240, 320)

    with open_frames(path, cache_frames=2000) as source:
        source.frame(0)
        before = resident()
        for index in range(1000):
            source.frame(index)

        assert resident() - before > MOST_GROWTH


def test_opening_again_and_again_does_not_leak(clips: Path) -> None:
    path = make_kind(clips, "h264.mp4")

    def use() -> None:
        with open_frames(path) as source:
            source.frame(20)
            source.frame(0)

    for _ in range(20):
        use()
    before = resident()
    for _ in range(100):
        use()

    assert resident() - before < 20 << 20


def test_what_is_not_there_is_an_error(clips: Path) -> None:
    source = open_frames(make_kind(clips, "h264.mp4"))

    for index in (-1, LENGTH, 10**12):
        with pytest.raises(VideoError, match=f"has no frame {index}"):
            source.frame(index)
        with pytest.raises(VideoError, match="has no frame"):
            source.time(index)
    with pytest.raises(VideoError, match="a frame index is an integer"):
        source.frame(True)
    assert number_in(source.frame(np.int64(7))) == 7  # type: ignore[arg-type]  # numpy counts too

    source.close()
    source.close()
    with pytest.raises(VideoError, match="has been closed"):
        source.frame(3)


def test_a_frame_belongs_to_who_asked_for_it(clips: Path) -> None:
    with open_frames(make_kind(clips, "h264.mp4")) as source:
        source.frame(3)[:] = 0

        assert number_in(source.frame(3)) == 3


def test_too_many_pixels_are_refused_from_the_header(clips: Path) -> None:
    with pytest.raises(VideoError, match="80 x 48 pixels") as raised:
        open_frames(make_kind(clips, "h264.mp4"), max_pixels=3000)

    assert raised.value.hint == "make it smaller, or pass `max_pixels=3_840`"


def test_a_missing_pyav_says_what_to_install(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_kind(clips, "h264.mp4")
    monkeypatch.setitem(sys.modules, "av", None)

    with pytest.raises(VideoError, match="PyAV, which is not installed") as raised:
        open_frames(path)

    assert raised.value.hint == "pip install samgraph[video]"


def test_options_are_checked(clips: Path) -> None:
    path = make_kind(clips, "h264.mp4")
    with pytest.raises(OptionError, match="`on_damage` cannot be `ignore`"):
        open_frames(path, on_damage="ignore")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(OptionError, match="`cache_frames` is out of range"):
        open_frames(path, cache_frames=0)


def test_a_file_that_changes_under_our_feet_is_an_error(tmp_path: Path, clips: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(make_kind(clips, "one group.mp4").read_bytes())
    source = VideoFile(path, cache_frames=2)
    source.frame(30)
    path.write_bytes(make_kind(clips, "h264.mp4").read_bytes())

    with pytest.raises(VideoError, match="has changed while it was being read"):
        source.frame(3)
    path.unlink()
    with pytest.raises(VideoError, match=r"clip\.mp4"):
        source.frame(2)


def test_missing_frame_error_is_a_video_error() -> None:
    assert issubclass(MissingFrameError, VideoError)
