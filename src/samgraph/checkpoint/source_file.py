"""A regular file opened for reading, whose every read is checked against its size.

The file is not memory-mapped: if another process truncates a mapped file, reading it raises SIGBUS,
whereas a short read is an ordinary error.
"""

import io
import os
import stat
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

Array = npt.NDArray[Any]
ByteArray = npt.NDArray[np.uint8]

MOST_AT_ONCE = 512  # arrays that one call reads into; systems allow 1024
KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def short_name(source: str) -> str:
    """The last part of a path, escaped for messages."""
    return shown(os.path.basename(source) or source)


def check_memory(needed: int, source: str) -> None:
    """Raise `CheckpointError` if the machine has less memory than `needed` bytes."""
    try:
        present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return  # unknown on this system: the allocation itself must fail
    if needed > present > 0:
        raise CheckpointError(
            f"`{source}` does not fit in memory",
            got=f"{needed / 1e9:,.1f} GB of tensors",
            expected=f"at most {present / 1e9:,.1f} GB",
        )


def as_values(raw: ByteArray, dtype: np.dtype[Any], order: str = "little") -> Array:
    """A view of `raw` as values of `dtype` in byte order `order`."""
    if dtype.itemsize > 1 and order != sys.byteorder:
        raw.view(f"u{dtype.itemsize}").byteswap(inplace=True)
    return raw.view(dtype)


def path_text(path: object) -> str:
    """A path as text.

    Raises:
        CheckpointError: It is something else.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise CheckpointError("a file is named by its path", got=f"a {type(path).__name__}")
    return os.fsdecode(path)


class SourceFile:
    """An open checkpoint file. Use it in a `with` block; errors carry its name."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_text(path)
        self.name = short_name(self.path)
        try:
            self._require_regular(os.stat(self.path).st_mode)
            self._stream = io.FileIO(self.path, "rb", opener=_open_without_waiting)
        except (OSError, ValueError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise self._cannot_open(error) from error
        status = os.fstat(self._stream.fileno())
        self.size = status.st_size
        try:
            self._require_regular(status.st_mode)
        except CheckpointError:
            self.close()
            raise

    def __enter__(self) -> "SourceFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._stream.close()

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`, for the small parts of a file."""
        buffer = bytearray(length)
        self._fill(memoryview(buffer), offset)
        return bytes(buffer)

    def read_bytes(self, offset: int, length: int) -> ByteArray:
        """`length` bytes from `offset`, read directly into a new array."""
        array = self._new_array(length)
        if length:
            self._fill(array.data, offset)
        return array

    def read_in_turn(self, offset: int, lengths: Sequence[int]) -> list[ByteArray]:
        """Runs of bytes that follow each other from `offset` on, each in a new array.

        As `read_bytes` for each, but in few calls where the system can: a call returns only when
        the interpreter is free, which another thread that imports a library keeps for 5 ms.
        """
        arrays = [self._new_array(length) for length in lengths]
        for start in range(0, len(arrays), MOST_AT_ONCE):
            group = arrays[start : start + MOST_AT_ONCE]
            total = sum(map(len, group))
            if self._read_scattered(group, offset) != total:  # one by one, which says what is wrong
                at = offset
                for array in filter(len, group):
                    self._fill(array.data, at)
                    at += len(array)
            offset += total
        return arrays

    def _read_scattered(self, arrays: list[ByteArray], offset: int) -> int:
        """How many bytes one call has read into the arrays; 0 where there is no such call."""
        try:
            return os.preadv(self._stream.fileno(), arrays, offset)  # type: ignore[arg-type]  # buffers
        except (AttributeError, OSError):
            return 0

    def _new_array(self, length: int) -> ByteArray:
        try:
            return np.empty(length, np.uint8)
        except (MemoryError, ValueError) as error:
            raise CheckpointError(
                f"`{self.name}` does not fit in memory", got=f"a tensor of {length:,} bytes"
            ) from error

    def _require_regular(self, mode: int) -> None:
        if stat.S_ISREG(mode):
            return
        kind = next((name for test, name in KINDS if test(mode)), "not a regular file")
        hint = "give the path of the file inside it" if stat.S_ISDIR(mode) else None
        raise CheckpointError(
            f"`{self.name}` is not a checkpoint", got=kind, expected="a file", hint=hint
        )

    def _cannot_open(self, error: Exception) -> CheckpointError:
        where = shown(self.path)
        if isinstance(error, FileNotFoundError):
            return CheckpointError(f"there is no file `{where}`")
        if isinstance(error, PermissionError):
            return CheckpointError(
                f"`{self.name}` may not be read", got="permission denied", hint="check its mode"
            )
        reason = getattr(error, "strerror", None) or str(error)
        return CheckpointError(f"`{self.name}` cannot be opened", got=shown(reason))

    def _fill(self, target: memoryview, offset: int) -> None:
        """Read until `target` is full."""
        if offset < 0 or offset + len(target) > self.size:
            raise CheckpointError(
                f"`{self.name}` is cut short or damaged",
                got=f"{self.size:,} bytes",
                expected=f"at least {offset + len(target):,}",
                hint="fetch or copy the file again",
            )
        try:
            self._read_all(target, offset)
        except OSError as error:
            raise CheckpointError(
                f"`{self.name}` cannot be read", got=shown(error.strerror or str(error))
            ) from error

    def _read_all(self, target: memoryview, offset: int) -> None:
        self._stream.seek(offset)
        done = 0
        while done < len(target):
            count = self._stream.readinto(target[done:])
            if not count:
                raise CheckpointError(
                    f"`{self.name}` became shorter while it was read",
                    got=f"an end after {offset + done:,} bytes",
                    expected=f"{self.size:,} bytes, as when it was opened",
                    hint="wait until it is no longer being written, then load it again",
                )
            done += count


def _open_without_waiting(path: str, flags: int) -> int:
    """Open `path` without blocking, even if it has been replaced by a pipe with no writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
