"""The folder of sessions: what was uploaded and what was made of it survive a restart.

    <folder>/<id>/session.json     kind, name and size of the image or video
    <folder>/<id>/upload           the file as it came
    <folder>/<id>/document.json    objects: the page's (image), names and prompts (video)
    <folder>/<id>/...              what a video session adds, see `video_sessions.py`

A session appears by the rename of a whole folder, and files in it are replaced whole. The least
recently used are deleted when there are too many, or too many bytes, or after some idle time. Few
are in memory at once; others are loaded when they are used again.
"""

import logging
import os
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from samgraph.errors import OutputError
from samgraph.jobs.run_lock import RunLock
from samgraph.media.files import make_folder, unwritable, write_atomically
from samgraph.serve.options import MEGABYTE, ServeOptions
from samgraph.serve.replies import RequestError
from samgraph.untrusted.files import read_regular

LOG = logging.getLogger("samgraph.serve")

Kind = Literal["image", "video"]
RECORD, UPLOAD, DOCUMENT, LOCK = "session.json", "upload", "document.json", ".lock"
LONGEST_RECORD = 1 << 16
MOST_REMEMBERED = 10_000
# The time of the last use is written at most this often, in seconds.
TOUCH_SECONDS = 10.0


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as in `session.json`; `fps` and `frames` of videos."""

    version: Literal[1] = 1
    kind: Kind
    name: str
    width: int
    height: int
    frames: int | None = None
    fps: float = 0.0
    duration: float | None = None


class Loaded(Protocol):
    """A session in memory."""

    @property
    def is_busy(self) -> bool:
        """Whether work is running, and it must stay in memory."""

    def close(self) -> None:
        """Save unsaved state, and release memory and files."""


@dataclass(slots=True, eq=False)
class Entry:
    """A session: where it is, when it was used, and its state in memory, if it is there."""

    id: str
    folder: Path
    record: Record
    used: float
    bytes: int
    loaded: Loaded | None = None
    users: int = 0
    is_deleted: bool = False
    touched: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


Loader = Callable[[Entry], Loaded]


class SessionStore:
    """Sessions by id. Safe to use from several threads; one process at a time has the folder."""

    def __init__(self, options: ServeOptions, loader: Loader) -> None:
        self._root, self._options, self._loader = options.folder, options, loader
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._deleted: deque[str] = deque(maxlen=MOST_REMEMBERED)
        self._guard = self._acquire()
        for path in sorted(self._root.iterdir()):
            if path.name.startswith(".new-"):
                shutil.rmtree(path, ignore_errors=True)
            elif path.is_dir() and not path.name.startswith("."):
                self._list(path)
        self.sweep()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def nbytes(self) -> int:
        """The size of all sessions on disk."""
        with self._lock:
            return sum(entry.bytes for entry in self._entries.values())

    @property
    def loaded(self) -> int:
        """How many sessions are in memory."""
        with self._lock:
            return sum(entry.loaded is not None for entry in self._entries.values())

    def entries(self) -> list[Entry]:
        """All sessions, the latest used first."""
        with self._lock:
            return sorted(self._entries.values(), key=lambda entry: -entry.used)

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """A folder for an upload; deleted with its content, unless `add` takes it."""
        folder = self._root / f".new-{secrets.token_hex(8)}"
        try:
            folder.mkdir()
        except OSError as error:
            raise unwritable(folder.name, error) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def add(self, folder: Path, record: Record, loaded: Loaded | None = None) -> Entry:
        """Make a session of an incoming folder, which holds `upload` at least."""
        write_atomically(folder / RECORD, msgspec.json.encode(record))
        name = ("i" if record.kind == "image" else "v") + secrets.token_hex(8)
        target = self._root / name
        try:
            folder.rename(target)
            _sync_folder(self._root)
        except OSError as error:
            raise unwritable(name, error) from error
        entry = Entry(name, target, record, time.time(), folder_bytes(target), loaded)
        with self._lock:
            self._entries[name] = entry
        self.sweep(keep=entry)
        return entry

    def find(self, name: str, kind: Kind) -> Entry:
        """A session by id.

        Raises:
            RequestError: There is none (404), or it was deleted (410).
        """
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.record.kind != kind:
                if name in self._deleted:
                    raise RequestError(
                        410, f"this {kind} was deleted", hint="upload it again, please"
                    )
                raise RequestError(404, f"there is no such {kind}")
            self._touch(entry)
            return entry

    @contextmanager
    def using(self, name: str, kind: Kind) -> Iterator[Loaded]:
        """A session in memory, where it stays for the length of the block."""
        entry = self.find(name, kind)
        with self._lock:
            entry.users += 1
        try:
            with entry.lock:
                if entry.loaded is None:
                    entry.loaded = self._loader(entry)
                loaded = entry.loaded
            self._unload(keep=entry)
            yield loaded
        finally:
            with self._lock:
                entry.users -= 1
            if entry.is_deleted:
                self._remove(entry)

    def delete(self, entry: Entry) -> None:
        """Delete a session; a session in use is deleted once it is released."""
        with self._lock:
            if self._entries.pop(entry.id, None) is None:
                return
            self._deleted.append(entry.id)
            entry.is_deleted = True
        self._remove(entry)

    def measure(self, entry: Entry) -> None:
        """Note what a session takes on disk."""
        entry.bytes = folder_bytes(entry.folder)

    def sweep(self, keep: Entry | None = None) -> None:
        """Delete what is too old or too much, and unload what is too much for memory."""
        for entry in self.entries():
            if entry.loaded is not None:
                self.measure(entry)
        oldest = time.time() - self._options.idle_seconds
        most = self._options.max_disk_mb * MEGABYTE
        for entry in reversed(self.entries()):
            over = len(self) > self._options.max_sessions or self.nbytes > most
            if entry is keep or not (over or entry.used < oldest):
                continue
            if entry.users or (entry.loaded is not None and entry.loaded.is_busy):
                continue
            self.delete(entry)
        self._unload(keep=keep)

    def close(self) -> None:
        """Save and unload every session, and release the folder."""
        for entry in self.entries():
            with entry.lock:
                loaded, entry.loaded = entry.loaded, None
            if loaded is not None:
                loaded.close()
        self._guard.release()

    def _acquire(self) -> RunLock:
        make_folder(self._root)
        guard = RunLock(self._root / LOCK)
        try:
            is_ours = guard.acquire()
        except OSError as error:
            raise unwritable(self._root, error) from error
        if not is_ours:
            raise OutputError(
                f"`{self._root}` is used by another server",
                hint="stop it, or choose another folder with --folder",
            )
        return guard

    def _list(self, folder: Path) -> None:
        """Note a session of an earlier run; a damaged session is left alone."""
        try:
            data = read_regular(folder / RECORD, LONGEST_RECORD)
            record = msgspec.json.decode(data or b"", type=Record)
            used = (folder / RECORD).stat().st_mtime
        except (OSError, ValueError, RecursionError) as error:
            LOG.warning("the session %s is left alone: %s", folder.name, error)
            return
        self._entries[folder.name] = Entry(folder.name, folder, record, used, folder_bytes(folder))

    def _touch(self, entry: Entry) -> None:
        entry.used = time.time()
        if entry.used - entry.touched > TOUCH_SECONDS:
            entry.touched = entry.used
            with suppress(OSError):
                os.utime(entry.folder / RECORD)

    def _unload(self, keep: Entry | None) -> None:
        """Unload the least recently used while there are too many in memory."""
        in_memory = [entry for entry in self.entries() if entry.loaded is not None]
        for entry in in_memory[: self._options.max_loaded - 1 : -1]:
            if not entry.lock.acquire(blocking=False):
                continue  # it is being loaded, or unloaded
            try:
                with self._lock:
                    loaded = entry.loaded
                    if entry is keep or entry.users or loaded is None or loaded.is_busy:
                        continue
                    entry.loaded = None
                loaded.close()
            finally:
                entry.lock.release()
            self.measure(entry)

    def _remove(self, entry: Entry) -> None:
        """Remove a deleted session from memory and disk, once it is not in use."""
        with entry.lock, self._lock:
            if entry.users:
                return
            loaded, entry.loaded = entry.loaded, None
        if loaded is not None:
            with suppress(OutputError):
                loaded.close()
        shutil.rmtree(entry.folder, ignore_errors=True)


def folder_bytes(folder: Path) -> int:
    """The size of all files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
