"""Only regular files are opened, at once, and read up to a size."""

import os
import socket
import time
import tracemalloc
from pathlib import Path

import pytest

from samgraph.untrusted.files import NotRegularError, is_private, open_regular, read_regular


def strange_paths(folder: Path) -> dict[str, str]:
    """Paths that lead to no file of bytes, and what they lead to."""
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("/dev/zero")
    here = os.getcwd()
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind("socket")
    os.chdir(here)
    return {"pipe": "a pipe", "folder": "a folder", "link": "a device", "socket": "a socket"}


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    start = time.monotonic()
    for name, kind in strange_paths(tmp_path).items():
        with pytest.raises(NotRegularError) as caught:
            open_regular(tmp_path / name)
        assert caught.value.strerror == kind

    assert time.monotonic() - start < 1


def test_no_more_is_read_than_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)

    assert read_regular(path, 5) == b"12345"
    assert read_regular(path, 4) is None
    assert read_regular(tmp_path / "sparse", 1 << 20) is None


def test_a_short_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert read_regular(path, 1 << 30) == b"12345"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1e6


def test_a_file_that_says_nothing_of_its_size_is_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of /proc do, or one that grows while it is read."""
    path = tmp_path / "growing"
    path.write_bytes(bytes(100))
    true = os.fstat

    class Small:
        def __init__(self, status: os.stat_result) -> None:
            self.st_mode, self.st_size = status.st_mode, 0

    monkeypatch.setattr(os, "fstat", lambda descriptor: Small(true(descriptor)))

    assert read_regular(path, 99) is None


def test_who_else_may_write(tmp_path: Path) -> None:
    for mode, private in ((0o700, True), (0o755, True), (0o775, False), (0o777, False)):
        tmp_path.chmod(mode)
        assert is_private(tmp_path.stat()) is private

    status = tmp_path.stat()
    foreign = os.stat_result((0o40700, *status[1:4], os.geteuid() + 1, *status[5:]))
    assert not is_private(foreign)
