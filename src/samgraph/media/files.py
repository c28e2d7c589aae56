"""Atomic writes: a file is written whole or not at all.

The bytes go to a temporary file beside the destination, which is then renamed: a reader never sees
half a file, and an earlier file survives a full disk or a killed process.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from samgraph.errors import OutputError
from samgraph.untrusted.text import shown


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to the file at `path`, replacing what is there.

    Raises:
        OutputError: The folder is missing or read-only, the disk is full, or `path` is a folder.
    """
    target = Path(path)
    temporary = target.parent / f".{target.name[:64]}.{secrets.token_hex(6)}.part"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except (OSError, ValueError) as error:
        _remove(temporary)
        raise unwritable(target, error) from error
    except BaseException:
        _remove(temporary)
        raise


def make_folder(folder: Path) -> Path:
    """The folder, made if it does not exist.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise OutputError(f"`{shown(str(folder))}` is a file", expected="a folder") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"`{shown(str(folder))}` cannot be made", got=reason.lower()) from error
    return folder


def _remove(path: Path) -> None:
    """Delete a file if it exists; errors are ignored."""
    with suppress(OSError, ValueError):
        path.unlink()


def unwritable(path: str | os.PathLike[str], error: Exception) -> OutputError:
    """The error for a file that could not be written, with the operating system's reason."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    parent = str(Path(path).parent)
    is_there = os.path.exists(parent)
    hint = None if is_there else f"make the folder first: `mkdir -p {shown(parent)}`"
    what = f"`{shown(os.fspath(path))}` cannot be written"
    return OutputError(what, got=reason.lower(), hint=hint)
