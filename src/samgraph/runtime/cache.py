"""The on-disk cache of compiled graphs.

A file is named after everything it depends on: the graph, the weights, the options, the code that
compiles, and the versions of engine and package.

    magic, key (64 bytes), length of the content (8), sha256 of all that and of the content, content

The content is hashed by several threads (`hashing.py`). The key is also stored inside, so that a
renamed file is detected. An invalid entry is removed with a warning and the graph is compiled. The
folder is private to the user; one that others may write to is not used, and a warning says why.
"""

import hashlib
import mmap
import os
import struct
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from samgraph.errors import OptionError, SamgraphWarning, printable
from samgraph.graph.graph import Graph
from samgraph.graph.printer import print_graph
from samgraph.graph.types import Array
from samgraph.runtime.hashing import array_pieces, digest_pieces, pieces
from samgraph.untrusted.files import NotRegularError, is_private, open_regular
from samgraph.version import __version__

_MAGIC = b"samgraph compiled graph 3\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}s64sQ32s")
_KEEP_BYTES = 8 << 30
_SPARE_BYTES = 256 << 20  # of a compiled graph: code and constants
_ABANDONED_SECONDS = 3600.0  # after which a temporary file is considered abandoned


def default_cache_dir(named: str | os.PathLike[str] | None = None) -> Path:
    """The cache root: `named`, `SAMGRAPH_CACHE`, or the user's cache folder.

    Raises:
        OptionError: It is in the home of a user that does not exist.
    """
    chosen = named if named is not None else os.environ.get("SAMGRAPH_CACHE")
    if chosen:
        try:
            return Path(chosen).expanduser()
        except RuntimeError as error:
            raise OptionError(f"the cache folder `{chosen}` is in nobody's home") from error
    from platformdirs import user_cache_path

    return user_cache_path("samgraph", appauthor=False)


def cache_key(graph: Graph, weights: Mapping[str, Array], *settings: str) -> str:
    """A hash of everything the compiled graph depends on."""
    state = hashlib.sha256()
    for part in (__version__, _code_digest(), *settings, print_graph(graph)):
        state.update(f"{len(part)}:{part}".encode())
    state.update(digest_pieces(array_pieces(weights[value.name] for value in graph.params)))
    return state.hexdigest()[:32]


def most_bytes(weights: Mapping[str, Array]) -> int:
    """A size that no compiled graph with these weights exceeds, so that no file asks for more."""
    return _SPARE_BYTES + 8 * sum(array.nbytes for array in weights.values())


@cache
def _code_digest() -> str:
    """A hash of the source of passes and engines, so that code changes invalidate the cache."""
    package = Path(__file__).resolve().parents[1]
    state = hashlib.sha256()
    for folder in ("graph", "ops", "passes", "engines"):
        for path in sorted((package / folder).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()


class GraphCache:
    """A folder of compiled graphs. It never raises: at worst it warns and caches nothing.

    An entry of more than `most_bytes` is neither read nor kept.
    """

    def __init__(self, folder: Path, most_bytes: int = _KEEP_BYTES) -> None:
        self.folder, self._most_bytes = folder, min(most_bytes, _KEEP_BYTES)

    def load(self, key: str) -> memoryview | None:
        """The content stored under `key`; None if there is none, or it is damaged."""
        path = self._path(key)
        if not self._is_ours():
            return None
        try:
            found = _read(path, key, self._most_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or "not enough memory"
            found = f"not readable ({reason})"
        if isinstance(found, memoryview):
            return found
        _remove(path)
        _warn(f"the cache file `{path}` is {found}; compiling anew")
        return None

    def peek(self, key: str) -> memoryview | None:
        """As `load`, without a word: a damaged entry is left for `load` to remove."""
        with suppress(OSError, MemoryError):
            if is_private((self.folder / "graphs").stat()):
                found = _read(self._path(key), key, self._most_bytes)
                return found if isinstance(found, memoryview) else None
        return None

    def store(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, atomically."""
        if len(data) > self._most_bytes:
            return
        path = self._path(key)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.parent.mkdir(exist_ok=True, mode=0o700)
            if not self._is_ours():
                return
            with fresh.open("wb") as file:
                file.write(_head(key, data))
                file.write(data)
            fresh.replace(path)
        except OSError as error:
            _remove(fresh)
            _warn(f"compiled graphs cannot be kept in `{self.folder}` ({error.strerror})")
            return
        with suppress(OSError):  # another process may remove the same files
            self._forget_oldest()

    def _path(self, key: str) -> Path:
        return self.folder / "graphs" / f"{key}.blob"

    def _is_ours(self) -> bool:
        """Whether only this user may write to the folder, if it exists."""
        folder = self.folder / "graphs"
        try:
            is_ours = is_private(folder.stat())
        except OSError:
            return True
        if not is_ours:
            _warn(
                f"compiled graphs are neither kept in nor read from `{folder}`, because other "
                f"users may write to it; make it yours with `chmod go-w`, or set `SAMGRAPH_CACHE`"
            )
        return is_ours

    def _forget_oldest(self) -> None:
        """Remove abandoned files, and the least recently used above the limit."""
        folder = self.folder / "graphs"
        for path in folder.glob("*.tmp"):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink(missing_ok=True)
        files = [(path, path.stat()) for path in folder.glob("*.blob")]
        total = sum(status.st_size for _, status in files)
        for path, status in sorted(files, key=lambda item: item[1].st_mtime):
            if total <= _KEEP_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size


def _read(path: Path, key: str, most_bytes: int) -> memoryview | str:
    """The content of an entry whose key, length and checksum are right, or the problem."""
    try:
        file = open_regular(path)
    except NotRegularError as error:
        return str(error.strerror)
    with file:
        status = os.fstat(file.fileno())
        if not is_private(status):
            return "one that other users may write to"
        raw = file.read(_HEAD.size)
        if len(raw) < _HEAD.size:
            return "damaged"
        magic, named, length, digest = _HEAD.unpack(raw)
        if magic != _MAGIC or status.st_size != _HEAD.size + length or length > most_bytes:
            return "damaged"
        if named != _padded(key):
            return "that of another graph"
        try:
            content = _map(file, length)
        except ValueError:  # it became shorter
            return "damaged"
        if _digest(raw[:-32], pieces(content)) != digest:
            return "damaged"
        with suppress(OSError):
            os.utime(file.fileno())  # for least recently used
    return content


def _map(file: BinaryIO, length: int) -> memoryview:
    """The content, writable so that engines use it without a copy; what is written stays here.

    It is mapped, not read: no page is copied, and the system may drop those that are not in use.
    Entries are replaced and removed but never changed, so a mapped one stays whole. Windows would
    not let it be replaced.
    """
    if os.name == "nt":
        return memoryview(bytearray(file.read(length)))
    mapped = mmap.mmap(file.fileno(), _HEAD.size + length, access=mmap.ACCESS_COPY)
    return memoryview(mapped)[_HEAD.size :]


def _head(key: str, data: bytes) -> bytes:
    head = _HEAD.pack(_MAGIC, _padded(key), len(data), bytes(32))[:-32]
    return head + _digest(head, pieces(memoryview(data)))


def _padded(key: str) -> bytes:
    return key.encode().ljust(64, b"\0")


def _digest(head: bytes, parts: Iterable[memoryview]) -> bytes:
    return hashlib.sha256(head + digest_pieces(parts)).digest()


def _remove(path: Path) -> None:
    """Remove a file or an empty folder."""
    with suppress(OSError):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _warn(text: str) -> None:
    warnings.warn(printable(text), SamgraphWarning, stacklevel=4)
