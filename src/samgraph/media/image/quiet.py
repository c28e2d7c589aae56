"""Suppression of Pillow's and libtiff's warnings while images are read.

`warnings.catch_warnings` restores what it saved, so overlapping threads can leave each other's
filters behind. Here the first thread to enter saves the filters, the last to leave restores them.
"""

import ctypes
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from PIL import _imaging

_lock = threading.Lock()
_readers = 0
_saved = warnings.catch_warnings()

# Without a handler, Pillow's log records about a damaged file would go to stderr.
logging.getLogger("PIL").addHandler(logging.NullHandler())


@contextmanager
def pillow_is_quiet() -> Iterator[None]:
    """Ignore warnings issued by Pillow, and only those, within the context."""
    global _readers, _saved
    with _lock:
        if _readers == 0:
            _saved = warnings.catch_warnings()
            _saved.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL(\.|$)")
        _readers += 1
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            if _readers == 0:
                _saved.__exit__(None, None, None)


@cache
def silence_libtiff() -> None:
    """Stop the libtiff that Pillow links from writing warnings and errors to stderr.

    Pillow still raises an error where decoding fails. The symbols are looked up through Pillow's
    own extension, so no other libtiff of the process changes; where they are not found, as with
    another way of linking, nothing changes.
    """
    try:
        library = ctypes.CDLL(_imaging.__file__)
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            handler = getattr(library, name)
            handler.argtypes, handler.restype = [ctypes.c_void_p], ctypes.c_void_p
            handler(None)
    except (OSError, AttributeError):
        return
