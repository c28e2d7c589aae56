"""Damaged videos: what can be read is read, what cannot is named, and every frame is counted."""

import os
import random
import struct
from pathlib import Path

import pytest

from samgraph.errors import VideoError
from samgraph.media.video.boxes import check_boxes
from samgraph.media.video.decoder import Decoder
from samgraph.media.video.frames import FrameSource, MissingFrameError, open_frames
from samgraph.media.video.packets import PacketList
from tests.media.video_making import (
    KINDS,
    LENGTH,
    cut_in_half,
    damaged_in_the_middle,
    edited,
    make_kind,
    make_video,
    number_in,
    picture,
)

LONG = 120


@pytest.fixture(scope="session")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 frames of H.264 with about 400 bytes each, so that 2,000 zeros hit a few of them."""
    pictures = [picture(number, 96, 128) for number in range(LONG)]
    path = tmp_path_factory.mktemp("long") / "holiday.mp4"
    return make_video(path, pictures, gop=12, options={"crf": "28"})


def readable(source: FrameSource, order: list[int] | None = None) -> dict[int, int]:
    """The number in every frame that can be read."""
    numbers = {}
    for index in order if order is not None else range(source.length or 0):
        try:
            numbers[index] = number_in(source.frame(index))
        except MissingFrameError:
            assert index in source.damage.missing
    return numbers


def test_zeros_in_the_middle_cost_only_the_frames_they_hit(tmp_path: Path, long_clip: Path) -> None:
    path = damaged_in_the_middle(tmp_path / "holiday.mp4", long_clip)

    with open_frames(path, on_damage="skip") as source:
        numbers = readable(source)
        damage = source.damage

    assert source.length == LONG
    assert 108 <= len(numbers) < LONG
    assert damage.is_damaged
    assert damage.declared == damage.found == LONG
    assert damage.decoded == len(numbers)
    assert damage.decoded + len(damage.missing) == LONG
    assert not set(damage.missing) & set(numbers)
    whole = set(numbers) - set(damage.concealed)
    assert all(numbers[index] == index for index in whole)
    first = damage.missing[0]
    assert f"{len(damage.missing)} frames from {first} on cannot be decoded" in str(damage)


def test_by_default_damage_is_an_error_that_counts_the_frames(
    tmp_path: Path, long_clip: Path
) -> None:
    path = damaged_in_the_middle(tmp_path / "holiday.mp4", long_clip)
    with open_frames(path, on_damage="skip") as source:
        readable(source)
        missing = source.damage.missing

    source = open_frames(path)
    with pytest.raises(VideoError) as raised:
        [source.frame(index) for index in range(LONG)]

    assert str(raised.value) == (
        f"`{path}` is damaged after frame {missing[0] - 1}"
        f" ({len(missing)} frames cannot be decoded)\n"
        f"  got:      {LONG - len(missing)} frames of the {LONG} the file declares\n"
        '  hint: pass `on_damage="skip"`, or add `--on-damage skip`, to keep the frames that are'
        " readable"
    )
    assert not isinstance(raised.value, MissingFrameError)
    assert source.damage.missing == missing


def test_the_same_frames_are_readable_whichever_way_they_are_reached(
    tmp_path: Path, long_clip: Path
) -> None:
    generator = random.Random(5)
    raw = bytearray(long_clip.read_bytes())
    for _ in range(6):
        at = generator.randrange(len(raw) // 10, len(raw) * 8 // 10)
        raw[at : at + 30] = generator.randbytes(30)
    path = tmp_path / "scratched.mp4"
    path.write_bytes(raw)
    orders = list(range(LONG)), list(range(LONG - 1, -1, -1)), generator.sample(range(LONG), LONG)

    found = []
    for order in orders:
        with open_frames(path, on_damage="skip", cache_frames=6) as source:
            found.append(set(readable(source, order)))
            again = set(readable(source))
            assert again == found[-1]
            assert set(source.damage.missing) == set(range(LONG)) - again

    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("name", "codec"), [("half.mkv", "libx264"), ("half.avi", "mpeg4"), ("half.webm", "libvpx-vp9")]
)
def test_a_file_cut_in_half_is_an_error_or_is_read_to_the_cut(
    tmp_path: Path, name: str, codec: str
) -> None:
    path = cut_in_half(tmp_path / name, make_video(tmp_path / f"whole {name}", 150, codec=codec))

    with pytest.raises(VideoError, match="is cut short") as raised:
        open_frames(path)
    with open_frames(path, on_damage="skip") as source:
        numbers = readable(source)

    assert "on_damage" in str(raised.value)
    assert 5 < len(numbers) < 150
    assert source.damage.is_damaged
    assert source.damage.is_cut_short or source.damage.lost
    assert source.damage.decoded + len(source.damage.missing) == source.length


def test_an_mp4_cut_in_half_tells_how_many_frames_are_gone(tmp_path: Path) -> None:
    whole = make_video(tmp_path / "whole.mp4", 60, muxing={"movflags": "faststart"})
    path = cut_in_half(tmp_path / "half.mp4", whole)

    with pytest.raises(VideoError, match="is cut short") as raised:
        open_frames(path)
    with open_frames(path, on_damage="skip") as source:
        numbers = readable(source)
        damage = source.damage

    assert damage.declared == 60
    assert damage.lost == 60 - (damage.found or 0) > 0
    assert f"got:      {damage.found} frames of the 60 the file declares" in str(raised.value)
    assert f"{damage.lost} of 60 declared frames are not in the file" in str(damage)
    assert all(numbers[index] == index for index in range(len(numbers) - 3))


def test_an_mp4_without_its_index_is_refused(tmp_path: Path) -> None:
    path = cut_in_half(tmp_path / "half.mp4", make_kind(tmp_path, "h264.mp4"))

    with pytest.raises(VideoError, match=r"half\.mp4. is damaged, or not a video"):
        open_frames(path, on_damage="skip")


def test_a_video_with_no_readable_frame_is_an_error_in_any_case(tmp_path: Path) -> None:
    raw = bytearray(make_kind(tmp_path, "h264.mp4").read_bytes())
    start = raw.index(b"mdat") + 4
    raw[start : raw.index(b"moov") - 4] = b"\x55" * (raw.index(b"moov") - 4 - start)
    path = tmp_path / "noise.mp4"
    path.write_bytes(raw)

    for on_damage in ("error", "skip"):
        with pytest.raises(VideoError, match="no frame of") as raised:
            open_frames(path, on_damage=on_damage)
        assert "0 frames of the 40 the file declares" in str(raised.value)


def test_damage_at_the_first_frame_is_seen_when_opening(tmp_path: Path) -> None:
    raw = bytearray(make_kind(tmp_path, "h264.mp4").read_bytes())
    start = raw.index(b"mdat") + 4
    raw[start + 700 : start + 1000] = bytes(300)
    path = tmp_path / "first.mp4"
    path.write_bytes(raw)

    with open_frames(path, on_damage="skip") as source:
        numbers = readable(source)
    if 0 not in numbers:
        with pytest.raises(VideoError, match="is damaged from its first frame on"):
            open_frames(path)
    assert len(numbers) >= LENGTH - 10


@pytest.mark.parametrize("kind", ["h264.mp4", "h264.mkv", "mpeg4.avi", "hevc.mkv", "vp8.webm"])
def test_an_error_at_the_end_costs_no_other_frame_whatever_the_threads(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = bytearray(make_kind(tmp_path, kind).read_bytes())
    with open_frames(tmp_path / kind) as source:
        last = source._packets.position[-1]  # type: ignore[attr-defined]  # where it lies
    raw[last + 8 : last + 30] = b"\xaa" * 22
    path = tmp_path / f"damaged {kind}"
    path.write_bytes(raw)

    found = []
    for threads in (1, 3):
        monkeypatch.setattr("samgraph.media.video.decoder._threads_for", lambda _, n=threads: n)
        with open_frames(path, on_damage="skip") as source:
            found.append(set(readable(source)))

    assert len(found[0]) >= LENGTH - 3
    assert found[0] <= found[1]


def test_undamaged_clips_are_not_called_damaged(tmp_path: Path) -> None:
    for kind in list(KINDS)[:4]:
        with open_frames(make_kind(tmp_path, kind), on_damage="skip") as source:
            readable(source)
            assert not source.damage.is_damaged
            assert str(source.damage) == "no damage"


def box(kind: bytes, *content: bytes) -> bytes:
    inside = b"".join(content)
    return struct.pack(">I", 8 + len(inside)) + kind + inside


def nested(content: bytes, *kinds: bytes) -> bytes:
    for kind in reversed(kinds):
        content = box(kind, content)
    return content


TABLE = (b"moov", b"trak", b"mdia", b"minf", b"stbl")


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("table", nested(box(b"stsz", struct.pack(">III", 0, 1, 10**6)), *TABLE)),
        ("table of large samples", nested(box(b"stsz", struct.pack(">III", 0, 9, 10**8)), *TABLE)),
        ("run", nested(box(b"trun", struct.pack(">II", 1, 10**7)), b"moof", b"traf")),
        ("many runs", nested(box(b"trun", struct.pack(">II", 1, 10**5)) * 3, b"moof", b"traf")),
        ("after an unknown box", box(b"abcd") + nested(
            box(b"stsz", struct.pack(">III", 0, 1, 10**6)), *TABLE)),
        ("box without an end", struct.pack(">I", 0) + b"moov" + nested(
            box(b"stsz", struct.pack(">III", 0, 1, 10**6)), *TABLE[1:])),
    ],
)  # fmt: skip
def test_more_frames_than_bytes_are_refused_before_a_table_is_made(
    tmp_path: Path, name: str, raw: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(raw)

    with pytest.raises(VideoError, match="more frames than it has bytes for"):
        check_boxes(os.fspath(path), f"`{name}`")


@pytest.mark.parametrize(
    "raw",
    [
        nested(box(b"stsz", struct.pack(">III", 0, 1000, 5000)), *TABLE),  # only cut short
        nested(box(b"stsz", struct.pack(">III", 0, 0, 10**9)), *TABLE),  # FFmpeg reads rows
        nested(box(b"trun", struct.pack(">II", 0x100, 10**9)), b"moof", b"traf"),
        b"\0\0\0\1moov" + struct.pack(">Q", 1 << 63),
        b"\0\0\0\7moov" * 5,
        b"\xff\xff\xff\xffmoov",
        nested(b"", *[b"moov"] * 500),
        b"",
        b"\0\0\0",
    ],
)
def test_other_boxes_are_left_to_the_reader(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "boxes"
    path.write_bytes(raw)

    check_boxes(os.fspath(path), "`boxes`")


def test_an_edit_list_that_shows_a_part_twice_is_read(tmp_path: Path) -> None:
    raw = make_video(tmp_path / "plain.mp4", 24, gop=8).read_bytes()
    path = tmp_path / "twice.mp4"
    for wide in (False, True):
        path.write_bytes(edited(raw, [(960, 1024), (40, -1), (400, 1024)], wide=wide))

        with open_frames(path) as source:
            numbers = list(readable(source).values())

        assert numbers[:24] == list(range(24))
        assert numbers[24:] == list(range(len(numbers) - 24))
        assert len(numbers) > 30


def test_entries_that_cannot_be_reached_are_given_up_by_the_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets that an edit list shows again and again cannot be told apart by their position."""
    raw = make_video(tmp_path / "plain.mp4", 12, gop=4).read_bytes()
    path = tmp_path / "again.mp4"
    path.write_bytes(edited(raw, [(480, 1024)] * 400))
    seeks, seek = [], Decoder._seek

    def counted(self: Decoder, entry: int, packets: PacketList) -> bool:
        seeks.append(entry)
        return seek(self, entry, packets)

    monkeypatch.setattr(Decoder, "_seek", counted)
    with open_frames(path) as source:
        assert source.length == 4800
        last = number_in(source.frame(4799))

    assert last == 11
    assert 16 < len(seeks) < 40  # of 1200 entries


def test_a_fragmented_file_is_cut_short_wherever_it_ends_within_a_box(tmp_path: Path) -> None:
    whole = make_video(
        tmp_path / "whole.mp4", 24, gop=8, muxing={"movflags": "frag_keyframe+empty_moov"}
    ).read_bytes()
    assert not check_boxes(str(tmp_path / "whole.mp4"), "it")
    last = whole.rindex(b"moof") - 4
    path = tmp_path / "cut.mp4"

    for length in (1, 3, 4, 7, 8, 9, 20, 60, len(whole) - last - 1):
        path.write_bytes(whole[: last + length])

        with pytest.raises(VideoError, match="is cut short"):
            open_frames(path)
        with open_frames(path, on_damage="skip") as source:
            assert source.damage.is_cut_short
            assert "cut short" in str(source.damage)
