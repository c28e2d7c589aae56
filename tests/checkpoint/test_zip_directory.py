import struct
from pathlib import Path

import pytest

from samgraph.checkpoint.source_file import SourceFile
from samgraph.checkpoint.zip_directory import ZipDirectory
from samgraph.errors import CheckpointError
from tests.checkpoint.making import Record, zip_bytes


def open_zip(folder: Path, raw: bytes) -> list[str]:
    path = folder / "a.pt"
    path.write_bytes(raw)
    with SourceFile(path) as file:
        archive = ZipDirectory(file)
        archive.require_plain()
        return [f"{name}={archive.read(name, limit=99).decode()}" for name in archive.names]


def test_records_are_found_below_the_root(tmp_path: Path) -> None:
    raw = zip_bytes([Record("r/one", b"1"), Record("r/two/three", b"23")])

    assert open_zip(tmp_path, raw) == ["one=1", "two/three=23"]


def test_a_comment_after_the_end_is_allowed(tmp_path: Path) -> None:
    raw = zip_bytes([Record("r/one", b"1")])
    comment = b"hello PK\x05\x06"

    with_comment = raw[:-2] + struct.pack("<H", len(comment)) + comment

    assert open_zip(tmp_path, with_comment) == ["one=1"]


FAULTS = {
    "has two records of one name": [Record("r/a", b"1"), Record("r/a", b"2")],
    "does not have one root folder": [Record("r/a", b"1"), Record("s/a", b"2")],
    "is a zip file, but not a checkpoint": [Record("a.npy", b"1")],
    "is encrypted": [Record("r/a", b"1", flags=1)],
    "has a compressed record": [Record("r/a", b"1", method=8)],
    "has a record with an unsafe name": [Record("r/../../a", b"1")],
    "has a record whose name is not UTF-8": [Record(b"r/\xff", b"1")],
    "has records that overlap": [Record("r/a", b"1" * 200), Record("r/b", b"2", offset=40)],
    "a record disagrees with the directory": [Record("r/a", b"1", local_name=b"r/b")],
    "the checksum of `a` is wrong": [Record("r/a", b"1", checksum=5)],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_in_doubt_is_refused(tmp_path: Path, fault: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_zip(tmp_path, zip_bytes(FAULTS[fault]))

    assert fault in str(caught.value)


@pytest.mark.parametrize("name", ["/r/a", "r\\a", "C:/r/a", "r/\x00", "r/a\n"])
def test_names_that_could_leave_the_archive_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="unsafe name"):
        open_zip(tmp_path, zip_bytes([Record(name, b"1")]))


def test_a_claimed_count_is_bounded_before_it_is_believed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="too many records"):
        open_zip(tmp_path, zip_bytes([Record("r/a", b"1")], count=10**12, large=True))


def test_a_directory_that_is_cut_off_is_said_to_be_missing(tmp_path: Path) -> None:
    raw = zip_bytes([Record("r/a", b"1" * 100)])

    with pytest.raises(CheckpointError, match="its zip directory is missing"):
        open_zip(tmp_path, raw[:-10])
