"""Files by address (`s3://bucket/a.jpg`), through fsspec where it is installed.

Only plain addresses of known kinds: fsspec can also chain file systems, run commands on other
machines and open archives, and none of that is for a list of images to ask for.
"""

import re
from typing import Any

from samgraph.errors import ImageError, OutputError
from samgraph.untrusted.text import shown

SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hdfs", "http", "https", "memory")
MAX_BYTES = 1 << 30
# The errors of a file system for a file that will not be there later either.
LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError)
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def is_remote(path: str) -> bool:
    """Whether a path is an address of any kind."""
    return _ADDRESS.match(path) is not None


def read_remote(address: str) -> bytes:
    """The bytes of a file.

    Raises:
        ImageError: It is missing, too large, or of a kind that is not read. Where it may be read
            later, `__cause__` is a `ConnectionError`.
    """
    label = f"`{shown(address)}`"
    try:
        system, place = _opened(address)
        with system.open(place, "rb") as file:
            data: bytes = file.read(MAX_BYTES + 1)
    except ImageError:
        raise
    except Exception as error:  # whatever the library of a file system raises
        cause = error if isinstance(error, LASTING) else ConnectionError(str(error))
        raise ImageError(f"{label} cannot be read", got=shown(str(error))) from cause
    if len(data) > MAX_BYTES:
        raise ImageError(f"{label} is too large", expected=f"at most {MAX_BYTES:,} bytes")
    return data


def write_remote(address: str, data: bytes) -> None:
    """Write a file; object storage shows it whole or not at all.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        system, place = _opened(address)
        system.makedirs(place.rpartition("/")[0], exist_ok=True)
        with system.open(place, "wb") as file:
            file.write(data)
    except Exception as error:  # whatever the library of a file system raises
        raise OutputError(f"`{shown(address)}` cannot be written", got=shown(str(error))) from error


def find_remote(pattern: str) -> list[str]:
    """The addresses that a pattern or folder names, in order.

    Raises:
        ImageError: They cannot be listed.
    """
    try:
        system, place = _opened(pattern)
        scheme = pattern.split("://")[0]
        is_pattern = any(mark in place for mark in "*?[")
        found = system.glob(place) if is_pattern else system.find(place)
    except ImageError:
        raise
    except Exception as error:  # whatever the library of a file system raises
        raise ImageError(f"`{shown(pattern)}` cannot be listed", got=shown(str(error))) from error
    return [f"{scheme}://{str(name).removeprefix(f'{scheme}://')}" for name in sorted(found)]


def _opened(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    scheme = address.split("://")[0].lower()
    if scheme not in SCHEMES or "::" in address:
        raise ImageError(
            f"`{shown(address)}` is no address that is read", expected=", ".join(SCHEMES)
        )
    try:
        import fsspec
    except ImportError as error:
        raise ImageError(
            f"`{shown(address)}` needs fsspec", hint="pip install 'samgraph[scale]'"
        ) from error
    system, place = fsspec.core.url_to_fs(address)
    return system, str(place)
