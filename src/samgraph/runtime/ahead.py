"""A compiled graph, restored while the weights that it belongs to are still being read.

A start notes which entry of the cache its largest graph was. The next start with the same file and
options restores that entry in a thread, before its key can be known:

    starts.json   a name for file and options -> graph, key, precision, threads, bytes of weights

The key is computed all the same, from every weight. A graph that was restored under another one is
thrown away, and the right one is restored or compiled: a note can cost time, never change a result.
"""

import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from samgraph.engines import Engine, EngineOptions, Program
from samgraph.passes.pipeline import PRECISIONS
from samgraph.runtime.cache import GraphCache
from samgraph.untrusted.files import read_regular
from samgraph.untrusted.text import strict_json

_FILE = "starts.json"
_MOST_NOTES = 64
_MOST_BYTES = 1 << 16  # of the file


@dataclass(frozen=True, slots=True)
class _Note:
    """The entry of a graph, what it was compiled with, and the bytes of its weights."""

    graph: str
    key: str
    options: EngineOptions
    weight_bytes: int


class Ahead:
    """The largest graph of the last start with the same file and options.

    Args:
        folder: The cache root; None: nothing is restored ahead, and nothing noted.
        parts: What identifies the file and the options.
    """

    def __init__(self, folder: Path | None = None, *parts: object) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._name = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
        notes = {} if folder is None else _recall(folder)
        self._noted = self._waiting = notes.get(self._name)
        self._thread: threading.Thread | None = None
        self._program: Program | None = None

    def begin(self, engine: Engine) -> None:
        """Restore the noted entry in a thread. What goes wrong is left to the usual way."""
        if self._waiting is not None and engine.caches_programs:
            self._thread = threading.Thread(target=self._restore, args=(engine, self._waiting))
            self._thread.start()

    def take(self, graph: str, key: str, options: EngineOptions) -> Program | None:
        """The program of this very key and options, once; None if it was not restored."""
        with self._lock:
            note = self._waiting
            if note is None or note.graph != graph:
                return None
            self._waiting = None
        if self._thread is not None:
            self._thread.join()
        program, self._program = self._program, None
        return program if (note.key, note.options) == (key, options) else None

    def note(self, graph: str, key: str, options: EngineOptions, weight_bytes: int) -> None:
        """Note the entry of a graph that was compiled or restored, if none noted is larger."""
        fresh = _Note(graph, key, options, weight_bytes)
        with self._lock:
            known = self._noted
            if self._folder is None or fresh == known:
                return
            if known is not None and weight_bytes < known.weight_bytes:
                return
            self._noted = fresh
            _remember(self._folder, self._name, fresh)

    def _restore(self, engine: Engine, note: _Note) -> None:
        with suppress(Exception):
            data = None if self._folder is None else GraphCache(self._folder).peek(note.key)
            if data is not None:
                self._program = engine.restore(data, note.options)


def _recall(folder: Path) -> dict[str, _Note]:
    """The notes by name, the oldest first; none where the file is missing or damaged."""
    try:
        raw = read_regular(folder / _FILE, _MOST_BYTES)
        known = strict_json(raw) if raw else {}
    except (OSError, ValueError):
        return {}
    lines = known.items() if isinstance(known, dict) else ()
    notes = {str(name): _read(line) for name, line in lines}
    return {name: note for name, note in notes.items() if note is not None}


def _read(line: object) -> _Note | None:
    """The note of a line; None if it is no note."""
    match line:
        case [str(graph), str(key), str(precision), int(threads), int(weight_bytes)]:
            if key.isalnum() and precision in PRECISIONS and threads >= 1:
                return _Note(graph, key, EngineOptions(precision, threads), weight_bytes)
    return None


def _remember(folder: Path, name: str, note: _Note) -> None:
    """Write a note, if that can be done; the oldest are forgotten."""
    known = _recall(folder)
    known.pop(name, None)
    known[name] = note
    lines = {
        name: [one.graph, one.key, *astuple(one.options), one.weight_bytes]
        for name, one in list(known.items())[-_MOST_NOTES:]
    }
    fresh = folder / f"{_FILE}.{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        fresh.write_text(json.dumps(lines), encoding="utf-8")
        fresh.replace(folder / _FILE)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
