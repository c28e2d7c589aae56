"""Compiled graphs on disk, so that a second start does not compile.

A file is named after everything it depends on: the graph, the weights, the options, the code that
compiles, and the versions of engine and package. It starts with a checksum of its content: a
damaged file is a warning and a new compilation, never an import of garbage.
"""

import hashlib
import os
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from samgraph.errors import SamgraphWarning
from samgraph.graph.graph import Graph
from samgraph.graph.printer import print_graph
from samgraph.graph.types import Array
from samgraph.version import __version__

_MAGIC = b"samgraph compiled graph 1\n"
_KEEP_BYTES = 8 << 30


def default_cache_dir() -> Path:
    """The folder for everything samgraph keeps; `SAMGRAPH_CACHE` names another."""
    named = os.environ.get("SAMGRAPH_CACHE")
    if named:
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("samgraph")


def cache_key(graph: Graph, weights: Mapping[str, Array], *settings: str) -> str:
    """A name that changes whenever the compiled graph would."""
    state = hashlib.sha256()
    for part in (__version__, _code_digest(), *settings, print_graph(graph)):
        state.update(f"{len(part)}:{part}".encode())
    for value in graph.params:
        array = weights[value.name]
        state.update(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)
    return state.hexdigest()[:32]


@cache
def _code_digest() -> str:
    """A name for the passes and engines as they are now, so that a change of code counts."""
    package = Path(__file__).resolve().parents[1]
    state = hashlib.sha256()
    for folder in ("graph", "ops", "passes", "engines"):
        for path in sorted((package / folder).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()


class GraphCache:
    """A folder of compiled graphs. It never fails: at worst it warns and keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, key: str) -> memoryview | None:
        """What was stored under `key`, if it is there and whole."""
        path = self._path(key)
        try:
            data = bytearray(path.stat().st_size)  # writable: engines use it in place
            with path.open("rb") as file:
                file.readinto(data)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            _warn(f"the cache file `{path}` cannot be read ({error.strerror}); compiling anew")
            return None
        head = len(_MAGIC) + 32
        body = memoryview(data)[head:]
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[head - 32 : head]:
            _warn(f"the cache file `{path}` is damaged; compiling anew")
            return None
        with suppress(OSError):
            os.utime(path)  # it was used now
        return body

    def store(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`; the file appears whole or not at all."""
        path = self._path(key)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(_MAGIC + hashlib.sha256(data).digest())
                file.write(data)
            fresh.replace(path)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink()
            _warn(f"compiled graphs cannot be kept in `{self.folder}` ({error.strerror})")
            return
        with suppress(OSError):  # another process may remove the same files
            self._forget_oldest()

    def _path(self, key: str) -> Path:
        return self.folder / "graphs" / f"{key}.blob"

    def _forget_oldest(self) -> None:
        """Remove the files used longest ago, until the rest is within the limit."""
        files = [(path, path.stat()) for path in (self.folder / "graphs").glob("*.blob")]
        total = sum(status.st_size for _, status in files)
        for path, status in sorted(files, key=lambda item: item[1].st_mtime):
            if total <= _KEEP_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size


def _warn(text: str) -> None:
    warnings.warn(text, SamgraphWarning, stacklevel=4)
