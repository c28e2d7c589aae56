"""A file of lines that are appended and never changed, and that survives any kind of stop.

A line is there whole or not at all: what a full disk or a kill left of a last line is cut off.
"""

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from samgraph.errors import OutputError
from samgraph.media.files import unwritable

SYNC_SECONDS, SYNC_LINES = 1.0, 100


class AppendOnlyFile:
    """A file that lines are appended to.

    Args:
        path: The file, made if it is not there.
        read: Takes the file's lines one by one; the first it returns False for is cut off, with
            all that follow.
        longest: The longest line, in bytes.
        sync_lines: Lines after which the disk is made to hold them.
        sync_seconds: Seconds after which it is.

    Raises:
        OutputError: The file cannot be opened, or is not a regular file.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[bytes], bool],
        longest: int,
        *,
        sync_lines: int = SYNC_LINES,
        sync_seconds: float = SYNC_SECONDS,
    ) -> None:
        self._path, self._longest = path, longest
        self._sync_lines, self._sync_seconds = sync_lines, sync_seconds
        try:
            self._file = _open_own(path)
            end = self._read(read)
            os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)
        except OSError as error:
            raise unwritable(path, error) from error
        self._end, self.unsynced, self._synced = end, 0, time.monotonic()

    def append(self, line: bytes) -> None:
        """Write a line, which ends in a newline; it is whole, or it is not there.

        Raises:
            OutputError: The disk is full; all lines before are as they were.
        """
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
                os.lseek(self._file, self._end, os.SEEK_SET)
            raise unwritable(self._path, error) from error
        self._end += len(line)
        self.unsynced += 1
        if self.is_due:
            self.sync()

    @property
    def is_due(self) -> bool:
        """Whether there are lines that the disk should be made to hold by now."""
        if not self.unsynced:
            return False
        is_old = time.monotonic() - self._synced >= self._sync_seconds
        return is_old or self.unsynced >= self._sync_lines

    def sync(self) -> None:
        """Have the disk hold what was written."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise unwritable(self._path, error) from error
        self.unsynced, self._synced = 0, time.monotonic()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _read(self, read: Callable[[bytes], bool]) -> int:
        """Hand over the lines of an earlier run; returns where the last whole line ends."""
        end = 0
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            while line := file.readline(self._longest):
                if not line.endswith(b"\n") or not read(line):
                    break
                end += len(line)
        return end


def _open_own(path: Path) -> int:
    """A file of the run, which is a file and not a way to another."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o644)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OutputError(f"`{path}` is not a regular file", hint="choose another folder with -o")
    return file
