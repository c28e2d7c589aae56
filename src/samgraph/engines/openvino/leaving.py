"""Programs at the end of the process: left as they are, for the system to take back at once.

Taking a compiled model apart gives back the code of every kernel by itself: 0.08 s for an image
encoder and a decoder, at the end of every process, where nothing needs it any more.
"""

import atexit
import ctypes
import weakref
from contextlib import suppress

_PROGRAMS: "weakref.WeakSet[object]" = weakref.WeakSet()


def leave_at_exit(program: object) -> None:
    """Do not take the program apart if it is still there when the interpreter ends."""
    _PROGRAMS.add(program)


@atexit.register
def _leave() -> None:
    """One reference more, which nobody gives back."""
    with suppress(AttributeError):  # not CPython: it is taken apart
        for program in list(_PROGRAMS):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(program))
