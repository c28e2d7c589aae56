"""Regular files, opened without blocking and read up to a size.

A path may lead to a pipe without a writer, to an endless device, or to a sparse file larger than
memory. Opening never blocks, the file is checked through its descriptor (the path may be replaced
in between), and no more than the limit is read.
"""

import io
import os
import stat

LONGEST_GROWTH = 1 << 16
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegularError(OSError):
    """The path does not lead to a regular file; `strerror` names what it leads to."""


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """A regular file, open for reading.

    Raises:
        OSError: It does not exist or may not be read; `NotRegularError` for other kinds of files.
        ValueError: The path is invalid.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    except OSError as error:
        if error.errno == _NO_SUCH_DEVICE:  # the error of opening a socket
            raise NotRegularError(error.errno, "a socket", os.fspath(path)) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotRegularError(_NO_SUCH_DEVICE, kind_of(mode), os.fspath(path))
    return os.fdopen(descriptor, "rb")


def kind_of(mode: int) -> str:
    """The kind of file, in words."""
    return next((name for test, name in KINDS if test(mode)), "not a regular file")


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes | None:
    """The bytes of a regular file; None if it is longer than `most_bytes`.

    Raises:
        OSError, ValueError: As `open_regular`.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            return None
        # `read` allocates what it is asked for: the size of the file, not that of the limit.
        data = file.read(size + 1)
        while size < len(data) <= most_bytes and (more := file.read(LONGEST_GROWTH)):
            data += more  # it grows, or its size is not known, as in /proc
    return data if len(data) <= most_bytes else None


def real_path(path: str | os.PathLike[str]) -> str:
    """The path with its links followed; as it is, if it can be no path of a file at all.

    For questions about a path use `os.path`, which answers them for any text: those of `Path` raise
    for names that are too long, not encodable, or in a folder that may not be searched.
    """
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.fspath(path)


def is_private(status: os.stat_result) -> bool:
    """Whether only this user, or root, may write to a file or folder."""
    if not hasattr(os, "geteuid"):
        return True  # Windows: the user's folders are the user's
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


_BINARY = getattr(os, "O_BINARY", 0)
_NO_SUCH_DEVICE = 6  # ENXIO
