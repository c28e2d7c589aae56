"""Lines that are whole or not there, whatever the disk does."""

import errno
import os
from pathlib import Path

import pytest

from samgraph.errors import OutputError
from samgraph.jobs.append_only import AppendOnlyFile


def test_a_line_that_does_not_fit_leaves_nothing_and_the_next_one_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AppendOnlyFile(tmp_path / "lines", lambda line: True, 100)
    file.append(b"first\n")
    write, calls = os.write, list[bytes]()

    def full(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:3])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OutputError, match="no space left"):
            file.append(b"second\n")
    assert (tmp_path / "lines").read_bytes() == b"first\n"
    file.append(b"third\n")
    file.close()

    assert (tmp_path / "lines").read_bytes() == b"first\nthird\n"


def test_what_is_not_whole_or_not_wanted_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"good\ngood\nbad\ngood\nhal")
    seen = []

    def read(line: bytes) -> bool:
        seen.append(line)
        return line == b"good\n"

    AppendOnlyFile(path, read, 100).close()

    assert seen == [b"good\n", b"good\n", b"bad\n"]
    assert path.read_bytes() == b"good\ngood\n"
    AppendOnlyFile(path, read, 3).close()  # lines that are too long
    assert path.read_bytes() == b""


def test_a_link_to_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"precious\n")
    (tmp_path / "lines").symlink_to(tmp_path / "other")

    with pytest.raises(OutputError):
        AppendOnlyFile(tmp_path / "lines", lambda line: False, 100)
    assert (tmp_path / "other").read_bytes() == b"precious\n"
