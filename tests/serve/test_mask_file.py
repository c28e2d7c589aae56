"""The file of masks: appended, indexed, cut at what is not whole, compacted."""

import io
import os
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from samgraph.errors import OutputError
from samgraph.media.mask import rle
from samgraph.serve.mask_file import Forget, MaskFile, MaskLine, are_masks
from samgraph.serve.timeline import AREA_JUMP, ranges, timeline

SIZE = (4, 5)
MASK = np.zeros(SIZE, np.bool_)
MASK[:2, 0] = True
COUNTS = rle.encode(MASK)["counts"].decode()


def line(frame: int, obj: int = 1, **more: Any) -> MaskLine:
    given: dict[str, Any] = {
        "version": 0, "prompted": False, "present": True, "score": 0.5, "object_score": 1.0,
        "area": 2, "box": (0, 0, 1, 2), "counts": COUNTS,
    }  # fmt: skip
    return MaskLine(frame=frame, object=obj, **(given | more))


def test_later_lines_replace_earlier_ones(tmp_path: Path) -> None:
    file = MaskFile(tmp_path / "m", SIZE)
    file.append([line(0), line(0, 2), line(3)])
    file.append([line(0, score=0.9), Forget(2), Forget(1, 3)])

    for each in (file, MaskFile(tmp_path / "m", SIZE)):
        assert [found.score for found in each.on(0)] == [0.9]
        assert each.frames().tolist() == [0]
        assert each.read(1, 3) is None
        assert each.read(2, 0) is None
        assert each.read(1, 10**9) is None
        assert len(each) == 1


@pytest.mark.parametrize(
    "damage", [b'{"type":"mask"', b"\n", b"\xff\n", b'{"type":"mask"}\n', b"[]\n"]
)
def test_what_is_not_whole_is_cut_off(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "m"
    first = MaskFile(path, SIZE)
    first.append([line(0), line(1)])
    first.close()
    good = path.read_bytes()
    path.write_bytes(good + damage)

    second = MaskFile(path, SIZE)
    assert second.frames().tolist() == [0, 1]
    second.append([line(2)])
    second.close()
    assert path.read_bytes().startswith(good)
    assert MaskFile(path, SIZE).frames().tolist() == [0, 1, 2]


def test_every_cut_of_the_file_keeps_the_whole_lines_before_it(tmp_path: Path) -> None:
    path = tmp_path / "m"
    file = MaskFile(path, SIZE)
    for frame in range(4):
        file.append([line(frame)])
    file.close()
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        again = MaskFile(path, SIZE)
        assert len(again) == data[:length].count(b"\n")
        again.close()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = MaskFile(tmp_path / "m", SIZE)
    file.append([line(0)])
    write = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:-30], offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OutputError, match="cannot be written"):
        file.append([line(1)])
    monkeypatch.undo()

    file.append([line(2)])
    file.close()
    assert MaskFile(tmp_path / "m", SIZE).frames().tolist() == [0, 2]


def test_a_file_that_was_mostly_replaced_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "m"
    file = MaskFile(path, SIZE)
    for _ in range(6000):
        file.append([line(0), line(1)])
    file.close()
    before = path.stat().st_size
    assert before > 1 << 20

    again = MaskFile(path, SIZE)
    assert path.stat().st_size < before / 1000
    again.append([line(2)])
    assert again.frames().tolist() == [0, 1, 2]
    assert again.read(1, 1) == line(1)


def test_an_hour_takes_little_memory(tmp_path: Path) -> None:
    """30 frames per second: masks are on disk, the index is 34 bytes per frame."""
    path = tmp_path / "m"
    with path.open("wb") as out:
        for frame in range(108_000):
            out.write(msgspec.json.encode(line(frame, counts="0" * 400)) + b"\n")
    tracemalloc.start()
    file = MaskFile(path, (1000, 1000))
    used, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(file) == 108_000
    assert used < 8e6
    assert peak < 16e6


def test_a_file_from_elsewhere_is_checked() -> None:
    good = msgspec.json.encode(line(0)) + b"\n"

    def fits(data: bytes, size_hw: tuple[int, int] = SIZE, frames: int | None = 4) -> bool:
        return are_masks(io.BytesIO(data), size_hw, frames, {1})

    assert fits(good + good)
    assert not fits(good, (5, 5))
    assert not fits(b"{}\n")
    assert not fits(good.replace(COUNTS.encode(), b"~"))
    assert not fits(good[:-1])
    for wrong in (line(4), line(0, 2), line(0, area=3), line(0, box=(0, 0, 6, 2))):
        assert not fits(good + msgspec.json.encode(wrong) + b"\n")


def test_a_frame_from_elsewhere_takes_no_memory() -> None:
    far = msgspec.json.encode(line(2**31 - 1)) + b"\n"
    assert not are_masks(io.BytesIO(far), SIZE, 10, {1})
    assert not are_masks(io.BytesIO(far), SIZE, None, {1})


def test_ranges_have_both_ends() -> None:
    assert ranges(np.array([1, 1, 0, 1], np.bool_)) == [(0, 1), (3, 3)]
    assert ranges(np.zeros(0, np.bool_)) == []


def test_reviews_name_what_is_strange(tmp_path: Path) -> None:
    file = MaskFile(tmp_path / "m", SIZE)
    file.append([line(frame, area=100) for frame in range(10)])
    file.append([
        line(3, area=round(100 * AREA_JUMP) + 1), line(5, present=False, area=0),
        line(8, score=0.1, area=100),
    ])  # fmt: skip

    found = timeline(10, file.lanes, {1: [0], 2: []}, {1: 0})

    assert [(entry.frame, entry.reason) for entry in found.review] == [
        (3, "area jump"),
        (4, "area jump"),
        (5, "disappeared"),
        (6, "came back"),
        (8, "low score"),
    ]
    assert found.objects[0].present == [(0, 4), (6, 9)]
    assert found.objects[0].low == [(8, 8)]
    assert found.objects[1].tracked == []
