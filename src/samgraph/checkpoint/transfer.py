"""Resumable HTTP transfer of one file, for `download`.

The bytes received are in `<file>.part`, and the server's ETag in `<file>.part.tag`. An attempt
requests the rest with `Range` and `If-Range`; a server that ignores these, or has other content
now, sends the whole file, and the transfer starts over.
"""

import errno
import hashlib
import http.client
import re
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn
from urllib.parse import urlsplit

from samgraph.errors import DownloadError
from samgraph.untrusted.text import shown

Progress = Callable[[int, int | None], None]

TIMEOUT_SECONDS = 30.0
CHUNK = 1 << 20
WORTH_TRYING_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
FULL = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})


class InterruptedTransferError(Exception):
    """The connection broke or the server was busy: another attempt may resume."""


class Received:
    """The number of bytes received, and their sha256."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, chunk: bytes) -> None:
        """Count and hash one more chunk."""
        self._hash.update(chunk)
        self.count += len(chunk)

    @property
    def sha256(self) -> str:
        """The hash of all bytes so far, in hexadecimal."""
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer: the URL, the partial file, the expected sha256, and the size limit."""

    address: str
    part: Path
    sha256: str
    most_bytes: int
    progress: Progress

    @property
    def tag(self) -> Path:
        """The file with the ETag of the content that `part` is the beginning of."""
        return self.part.with_name(f"{self.part.name}.tag")

    def discard(self) -> None:
        """Delete the partial file."""
        for path in (self.part, self.tag):
            path.unlink(missing_ok=True)

    def attempt(self) -> bool:
        """Fetch what is missing. True when `part` is complete and its hash is right.

        False means that a resumed file had the wrong hash and was deleted, so starting over may
        succeed. Raises `InterruptedTransferError` when another attempt may succeed, and `OSError`
        when writing fails.
        """
        kept = self._kept()
        if kept.count and kept.sha256 == self.sha256:
            return True
        try:
            response = _open(self._request(kept.count))
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error, kept.count)
        except (OSError, http.client.HTTPException) as error:
            _explain(error, self.address)
        with response:
            received = self._receive(response, kept)
        return self._judge(received, resumed=received is kept and kept.count > 0)

    def _kept(self) -> Received:
        """The bytes of earlier attempts."""
        received = Received()
        if self.part.is_file():
            with self.part.open("rb") as stream:
                while chunk := stream.read(CHUNK):
                    received.add(chunk)
        return received

    def _request(self, offset: int) -> urllib.request.Request:
        request = urllib.request.Request(self.address)  # noqa: S310  # `_open` has only http(s)
        request.add_header("User-Agent", "samgraph")
        request.add_header("Accept-Encoding", "identity")
        if offset:
            request.add_header("Range", f"bytes={offset}-")
            if self.tag.is_file():
                request.add_header("If-Range", self.tag.read_text(encoding="ascii"))
        return request

    def _receive(self, response: http.client.HTTPResponse, kept: Received) -> Received:
        """Append the body to `part`, or replace it if the body is the whole file."""
        received = kept if self._continues(response, kept.count) else Received()
        total = None if response.length is None else received.count + response.length
        self._check_room(total, received.count)
        self._remember_tag(response)
        with self.part.open("ab" if received.count else "wb") as stream:
            self._copy(response, stream, received, total)
        if total is not None and received.count < total:
            raise InterruptedTransferError(f"the server stopped at {received.count:,} of {total:,}")
        return received

    def _continues(self, response: http.client.HTTPResponse, offset: int) -> bool:
        """Whether the body starts at `offset`, as requested; otherwise it is the whole file."""
        if response.status != http.client.PARTIAL_CONTENT:
            return False
        content_range = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
        if not offset or not content_range or int(content_range[1]) != offset:
            self.discard()
            raise InterruptedTransferError("the server sent another part than was asked for")
        return True

    def _copy(
        self,
        response: http.client.HTTPResponse,
        stream: BinaryIO,
        received: Received,
        total: int | None,
    ) -> None:
        self.progress(received.count, total)
        while chunk := _next_chunk(response):
            stream.write(chunk)
            received.add(chunk)
            self.progress(received.count, total)
            if received.count > self.most_bytes:
                self._too_large(received.count)

    def _check_room(self, total: int | None, have: int) -> None:
        """Raise if the file is too large, or larger than the free disk space."""
        if total is None:
            return
        if total > self.most_bytes:
            self._too_large(total)
        free = shutil.disk_usage(self.part.parent).free
        if total - have > free:
            raise DownloadError(
                f"there is no room for `{self.part.stem}` in `{self.part.parent}`",
                got=f"{free / 1e6:,.0f} MB free",
                expected=f"{(total - have) / 1e6:,.0f} MB",
                hint="free some space, or set `SAMGRAPH_CACHE` to a folder on another disk",
            )

    def _too_large(self, count: int) -> NoReturn:
        self.discard()
        raise DownloadError(
            f"`{self.address}` is not the file that was promised",
            got=f"{count:,} bytes or more",
            expected=f"at most {self.most_bytes:,}",
        )

    def _remember_tag(self, response: http.client.HTTPResponse) -> None:
        """Store a strong ETag for `If-Range`; without one, only the final hash is checked."""
        tag = response.headers.get("ETag") or ""
        if tag.startswith('"') and tag.isascii() and tag.isprintable():
            self.tag.write_text(tag, encoding="ascii")
        else:
            self.tag.unlink(missing_ok=True)

    def _refused(self, error: urllib.error.HTTPError, resumed: int) -> bool:
        """Handle an error status: start over, retry, or give up."""
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and resumed:
            self.discard()
            return False
        if error.code in WORTH_TRYING_AGAIN:
            raise InterruptedTransferError(f"the server answered {error.code}") from error
        raise DownloadError(
            f"`{self.address}` cannot be fetched",
            got=shown(f"the answer {error.code} {error.reason}"),
            hint="check the address, or give another with `SAMGRAPH_MIRROR`",
        ) from error

    def _judge(self, received: Received, *, resumed: bool) -> bool:
        """Whether the complete file has the expected hash."""
        if received.sha256 == self.sha256:
            return True
        self.discard()
        if resumed:
            return False
        raise DownloadError(
            f"`{self.address}` is not the file that was promised",
            got=f"sha256 {received.sha256}",
            expected=f"sha256 {self.sha256}",
            hint="nothing was kept; a mirror or a proxy may have changed the file",
        )


def check_address(address: str) -> str:
    """Return `address` if it is an absolute http or https URL without credentials."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or " " in address:
        raise DownloadError(
            f"`{shown(address)}` is not an address to fetch from",
            expected="https://... or http://...",
        )
    return address


def disk_error(error: OSError, path: Path) -> DownloadError:
    """The error for a file of the cache that cannot be written."""
    if error.errno in FULL:
        return DownloadError(
            f"the disk is full: `{path}` cannot be written",
            hint="free some space and run again: the download goes on where it stopped",
        )
    return DownloadError(
        f"`{path}` cannot be written",
        got=error.strerror or str(error),
        hint="set `SAMGRAPH_CACHE` to a folder you can write to",
    )


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    """Send a request. Redirects are followed to http and https only."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT_SECONDS)
    return response


def _next_chunk(response: http.client.HTTPResponse) -> bytes:
    """The next chunk of the body; empty at its end."""
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise InterruptedTransferError(shown(str(error) or type(error).__name__)) from error


def _explain(error: Exception, address: str) -> NoReturn:
    """Raise `InterruptedTransferError` for failures worth a retry, `DownloadError` for others."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        raise DownloadError(
            f"`{address}` has a certificate that cannot be verified",
            got=shown(str(reason)),
            hint="check the clock and the certificates of this machine",
        ) from error
    if isinstance(reason, str):
        raise DownloadError(f"`{address}` cannot be fetched", got=shown(reason)) from error
    raise InterruptedTransferError(shown(str(reason) or type(reason).__name__)) from error
