"""The right to write into a folder, held by one process at a time.

It is a lock on a file in the folder, which the system releases when a process dies. The file is
removed before the lock is released, so whoever opened it in the meantime holds the lock of a file
that is gone: after locking, the file at the path must still be the file that was locked.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

TRIES = 1000


class RunLock:
    """A lock that is taken at once or not at all, and leaves no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take the lock; False if another process holds it.

        Raises:
            OSError: The file cannot be made.
        """
        for _ in range(TRIES):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            if not _locked(file):
                os.close(file)
                return False
            if self._is_there(file):
                self._file = file
                return True
            os.close(file)  # it was removed before it was locked: another try, with a new file
        return False

    def release(self) -> None:
        """Release the lock and remove the file. Doing it twice is harmless."""
        file, self._file = self._file, None
        if file is None:
            return
        if sys.platform != "win32":
            with suppress(OSError):
                self._path.unlink()
        os.close(file)
        if sys.platform == "win32":  # where an open file cannot be removed, nor locked once gone
            with suppress(OSError):
                self._path.unlink()

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat(follow_symlinks=False))
        except OSError:
            return False


_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)

if sys.platform == "win32":
    import msvcrt

    def _locked(file: int) -> bool:
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _locked(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
