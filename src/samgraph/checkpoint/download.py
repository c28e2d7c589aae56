"""Downloads of released checkpoints into a cache.

    address -> <cache>/<file>.part -> sha256 -> <cache>/<file>

A file is renamed into the cache only after its sha256 is verified. Interrupted downloads are
resumed, in this run or the next. Processes that need the same file wait for each other.

`SAMGRAPH_CACHE` sets the cache folder, `SAMGRAPH_MIRROR` the server, and with `SAMGRAPH_OFFLINE=1`
no connection is opened. None of them can change a file's content: its hash is fixed.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from samgraph.checkpoint.names import Release
from samgraph.checkpoint.transfer import (
    InterruptedTransferError,
    Progress,
    Transfer,
    check_address,
    disk_error,
)
from samgraph.errors import DownloadError
from samgraph.runtime.cache import default_cache_dir

MIRROR, OFFLINE = "SAMGRAPH_MIRROR", "SAMGRAPH_OFFLINE"

TRIES = 4  # without a byte of progress between them
MOST_TRIES = 40
PAUSE_SECONDS = 0.5
LOCK_SECONDS = 3600.0
SLACK_BYTES = 16 << 20


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder of downloaded checkpoints: `cache_dir`, or `checkpoints` in the cache root."""
    if cache_dir is not None:
        return default_cache_dir(cache_dir)
    return default_cache_dir() / "checkpoints"


def cached(release: Release, *, cache_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The path of `release` in the cache; None if it has not been downloaded."""
    path = cache_folder(cache_dir) / release.file
    return path if os.path.isfile(path) else None


def is_offline(offline: bool | None = None) -> bool:
    """Whether connections are forbidden, by argument or by `SAMGRAPH_OFFLINE`."""
    if offline is not None:
        return offline
    return os.environ.get(OFFLINE, "").strip().lower() not in ("", "0", "false", "no", "off")


def fetch(
    release: Release,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    mirror: str | None = None,
    offline: bool | None = None,
    progress: Progress | None = None,
) -> Path:
    """The path of `release`, downloaded if it is not in the cache.

    `mirror` is the URL of a folder with the same file. `progress` is called with the bytes
    received and the total; without it, a bar is shown on a terminal.
    """
    found = cached(release, cache_dir=cache_dir)
    if found is not None:
        return found
    path = cache_folder(cache_dir) / release.file
    address = _address(release, mirror)
    if is_offline(offline):
        raise DownloadError(
            f"`{release.name}` has not been downloaded, and samgraph is offline",
            expected=f"the file `{path}`",
            hint=f"unset `{OFFLINE}`, or fetch {release.address} elsewhere and put it there",
        )
    with _locked(path):
        if not os.path.isfile(path):
            with _reporting(release, progress) as report:
                most = 2 * release.approximate_bytes + SLACK_BYTES
                part = path.with_name(f"{path.name}.part")
                _complete(Transfer(address, part, release.sha256, most, report))
            _publish(part, path)
    return path


def _address(release: Release, mirror: str | None) -> str:
    base = mirror if mirror is not None else os.environ.get(MIRROR)
    return check_address(f"{base.rstrip('/')}/{release.file}" if base else release.address)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file of `path`, among all processes of this machine."""
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f"{path.name}.lock"))
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout as error:
        raise DownloadError(
            f"another process has been fetching `{path.name}` for an hour",
            hint=f"end it, or delete `{path.name}.lock` in `{path.parent}`",
        ) from error
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        yield
    finally:
        lock.release()


def _complete(transfer: Transfer) -> None:
    """Retry until the file is complete, with exponential backoff while no bytes arrive."""
    failures = 0
    last = ""
    for _ in range(MOST_TRIES):
        before = _size(transfer.part)
        try:
            if transfer.attempt():
                return
            failures += 1
        except InterruptedTransferError as error:
            last = str(error)
            failures = 0 if _size(transfer.part) > before else failures + 1
        except DownloadError:
            raise
        except OSError as error:
            raise disk_error(error, transfer.part) from error
        if failures >= TRIES:
            break
        time.sleep(PAUSE_SECONDS * 2**failures)
    raise DownloadError(
        f"`{transfer.address}` cannot be fetched",
        got=last or "a file that keeps changing",
        hint="check the connection and run again: the download goes on where it stopped",
    )


def _size(path: Path) -> int:
    return path.stat().st_size if os.path.isfile(path) else 0


def _publish(part: Path, path: Path) -> None:
    """Rename a finished download, atomically."""
    try:
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(part, path)
        part.with_name(f"{part.name}.tag").unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error


@contextmanager
def _reporting(release: Release, progress: Progress | None) -> Iterator[Progress]:
    """The caller's progress function, a bar on a terminal, or a no-op."""
    if progress is not None:
        yield progress
    elif sys.stderr is not None and sys.stderr.isatty():
        with _bar(release) as report:
            yield report
    else:
        yield _silent


def _silent(done: int, total: int | None) -> None:
    """Report nothing."""


@contextmanager
def _bar(release: Release) -> Iterator[Progress]:
    """A progress bar with size, speed and time left, on standard error."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(release.name, total=release.approximate_bytes)
        yield lambda done, total: bars.update(task, completed=done, total=total)
