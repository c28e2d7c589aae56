"""A small web server for the download tests, which misbehaves on request."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Behaviour:
    """What the server sends, and what it does wrong. `stops` are byte counts to break off after."""

    content: bytes
    tag: str | None = '"one"'
    ranges: bool = True
    wrong_start: bool = False
    announce_length: bool = True
    statuses: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    redirect: str | None = None
    requests: list[dict[str, str]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """Answers every GET according to the server's behaviour."""

    behaviour: Behaviour

    def do_GET(self) -> None:
        behaviour = self.behaviour
        behaviour.requests.append(dict(self.headers.items()))
        if behaviour.redirect:
            self.send_response(302)
            self.send_header("Location", behaviour.redirect)
            self.end_headers()
        elif behaviour.statuses and (status := behaviour.statuses.pop(0)) != 200:
            self.send_error(status)
        else:
            self.send_content(behaviour)

    def send_content(self, behaviour: Behaviour) -> None:
        content, start = behaviour.content, self.wanted_start(behaviour)
        if start >= len(content) > 0:
            self.send_error(416)
            return
        body = content[start:]
        self.send_response(206 if start else 200)
        if start:
            shown = start + 1 if behaviour.wrong_start else start
            self.send_header("Content-Range", f"bytes {shown}-{len(content) - 1}/{len(content)}")
        if behaviour.tag:
            self.send_header("ETag", behaviour.tag)
        if behaviour.announce_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if behaviour.stops:
            body = body[: behaviour.stops.pop(0)]
        self.wfile.write(body)

    def wanted_start(self, behaviour: Behaviour) -> int:
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, behaviour.tag)
        return int(found[1]) if found and behaviour.ranges and same else 0

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """The address of a server on this machine that behaves so."""
    handler = type("Bound", (Handler,), {"behaviour": behaviour})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
