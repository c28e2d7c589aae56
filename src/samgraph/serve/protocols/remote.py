"""Files that a tool names by address, fetched only from hosts that the operator has named.

Label Studio's tasks hold addresses, not images. Without `--allow-host` nothing is ever fetched.
With it, only `http` and `https` addresses of exactly these hosts and ports are, redirections
included, and never more bytes than a file may have.
"""

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO
from urllib.parse import urljoin, urlsplit

from samgraph.errors import OptionError
from samgraph.serve.replies import RequestError
from samgraph.untrusted.text import shown

PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"[a-z0-9._:-]+")
CHUNK = 1 << 20
SECONDS = 30.0
LONGEST_ADDRESS = 4096


@dataclass(frozen=True, slots=True)
class Origin:
    """A scheme, a host and a port."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def read_origin(text: str) -> Origin | None:
    """The origin of an address; None for anything but a plain `http` or `https` address."""
    if len(text) > LONGEST_ADDRESS or not text.isprintable() or "\\" in text:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    host = (parts.hostname or "").lower()
    if scheme not in PORTS or not HOST.fullmatch(host) or "@" in parts.netloc:
        return None
    return Origin(scheme, host, PORTS[scheme] if port is None else port)


class AllowedHosts:
    """The hosts an operator has named, and their tokens.

    Args:
        hosts: `host`, `host:port`, or `http://host:port`; without a scheme both are allowed,
            without a port that of the scheme.

    Raises:
        OptionError: A host has another form.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._origins: dict[Origin, str | None] = {}
        for text in hosts:
            schemes = [""] if "://" in text else [f"{scheme}://" for scheme in PORTS]
            for scheme in schemes:
                origin = read_origin(scheme + text)
                if origin is None or urlsplit(scheme + text).path not in ("", "/"):
                    raise OptionError(
                        f"`{shown(text, 80)}` is not a host", expected="host, or host:port"
                    )
                self._origins[origin] = None

    def __bool__(self) -> bool:
        return bool(self._origins)

    def remember_token(self, address: str, token: str) -> None:
        """Set the token for a host; ignored for hosts that were not named."""
        origin = read_origin(address)
        if origin in self._origins:
            self._origins[origin] = token

    def resolve(self, address: str, base: str | None = None) -> str:
        """The address to fetch; without a host it is relative to `base`, else to the first host.

        Raises:
            RequestError: The host was not named, or it is no address that can be fetched.
        """
        if address.startswith("/") and not address.startswith("//"):
            address = self._joined(address, base)
        origin = read_origin(address)
        if origin is None:
            raise RequestError(
                400,
                f"`{shown(address, 80)}` cannot be fetched",
                hint="tasks need an http or https address, a path of Label Studio, or a data URI",
            )
        if origin not in self._origins:
            raise RequestError(
                403,
                f"the file is at `{shown(str(origin), 80)}`, and this server fetches nothing there",
                hint=f"start it with --allow-host {shown(origin.host, 80)}:{origin.port}",
            )
        return address

    def fetch(self, address: str, into: IO[bytes], limit: int) -> int:
        """Copy a file from a host that was named; returns how many bytes. Runs in a thread.

        Raises:
            RequestError: It cannot be had, or is longer than `limit` bytes.
        """
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirections(self),
        ):
            opener.add_handler(handler)
        request = urllib.request.Request(self.resolve(address))  # noqa: S310 (http or https)
        origin = read_origin(address)
        token = None if origin is None else self._origins.get(origin)
        if token:
            request.add_unredirected_header("Authorization", f"Token {token}")
        try:
            with opener.open(request, timeout=SECONDS) as reply:
                return _copy(reply, into, limit)
        except urllib.error.HTTPError as error:
            error.close()
            raise _unavailable(address, f"status {error.code}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            why = getattr(reason, "strerror", None) or str(reason)
            raise _unavailable(address, why.lower()) from error

    def _joined(self, path: str, base: str | None) -> str:
        known = [base] if base and read_origin(base) in self._origins else []
        known += [str(origin) for origin in self._origins]
        if not known:
            raise RequestError(
                403,
                f"`{shown(path, 80)}` is a path of Label Studio, and this server fetches none",
                hint="start it with --allow-host and the host and port of Label Studio",
            )
        return urljoin(known[0] + "/", path)


class _Redirections(urllib.request.HTTPRedirectHandler):
    """Redirections, as far as they stay on hosts that were named."""

    def __init__(self, hosts: AllowedHosts) -> None:
        self._hosts = hosts

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The next request.

        Raises:
            RequestError: It leads to another host.
        """
        try:
            self._hosts.resolve(newurl)
        except RequestError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _copy(reply: IO[bytes], into: IO[bytes], limit: int) -> int:
    total = 0
    while chunk := reply.read(CHUNK):
        total += len(chunk)
        if total > limit:
            raise RequestError(413, f"the file is longer than {limit / (1 << 20):g} MB")
        into.write(chunk)
    return total


def _unavailable(address: str, why: str) -> RequestError:
    return RequestError(
        400, f"`{shown(address, 80)}` could not be fetched: {shown(why, 120)}", code="unavailable"
    )
