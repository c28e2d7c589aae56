"""Pillow's warnings, and libtiff's, kept from the user while images are being read.

`warnings.catch_warnings` restores what it saved, so two threads that overlap can leave each
other's filters behind. Here the first thread in saves and the last one out restores.
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

# Without a handler of its own, what Pillow logs about a damaged file would land on stderr.
logging.getLogger("PIL").addHandler(logging.NullHandler())


@contextmanager
def pillow_is_quiet() -> Iterator[None]:
    """Ignore warnings issued from within Pillow, and only those, for as long as this lasts."""
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
    """Keep the libtiff beneath Pillow from writing what it finds wrong to stderr, from now on.

    Nothing is lost: Pillow raises an error where it matters. The functions are found by way of
    Pillow's own library, so no other libtiff of the process changes; where they are not, as in a
    Pillow that was linked otherwise, libtiff goes on talking.
    """
    try:
        library = ctypes.CDLL(_imaging.__file__)
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            handler = getattr(library, name)
            handler.argtypes, handler.restype = [ctypes.c_void_p], ctypes.c_void_p
            handler(None)
    except (OSError, AttributeError):
        return
