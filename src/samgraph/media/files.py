"""Files are written whole or not at all.

The bytes go to a hidden file beside the destination, which then takes its name in one step: a
reader never sees half a file, and an earlier file survives a full disk or a lost process.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from samgraph.errors import OutputError


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` in the file at `path`, replacing what is there.

    Raises:
        OutputError: The folder is missing or read-only, the disk is full, or `path` is a folder.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name[:64]}.{secrets.token_hex(6)}.part")
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
        raise OutputError(f"`{folder}` is a file", expected="a folder") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"`{folder}` cannot be made", got=reason.lower()) from error
    return folder


def _remove(path: Path) -> None:
    """Take a file away, if it is there: a disk that is read-only refuses even to look."""
    with suppress(OSError, ValueError):
        path.unlink()


def unwritable(path: str | os.PathLike[str], error: Exception) -> OutputError:
    """The error for a file that could not be written, with the reason the system gave."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    parent = Path(path).parent
    hint = f"make the folder first: `mkdir -p {parent}`" if not parent.exists() else None
    return OutputError(f"`{path}` cannot be written", got=reason.lower(), hint=hint)
