"""Files that are fetched: only from hosts that were named, and never too much."""

import http.server
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from samgraph.errors import OptionError
from samgraph.serve.protocols.remote import AllowedHosts
from samgraph.serve.replies import RequestError
from tests.serve.protocols.drawn import picture_bytes, shapes
from tests.serve.protocols.test_label_studio import config, keypoint, predict, result
from tests.serve.serving import error_of, running


class Files(http.server.BaseHTTPRequestHandler):
    """A picture for who shows the token; redirections here and to another host."""

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization")))  # type: ignore[attr-defined]
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "/data/upload/1/a.png")
            self.end_headers()
        elif self.path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/a.png")
            self.end_headers()
        elif self.path.startswith("/data/upload/"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(picture_bytes())
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def files() -> Iterator[tuple[str, list[Any]]]:
    """A host of files: `host:port`, and what was asked of it."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as host:
        host.seen = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=host.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{host.server_address[1]}", host.seen  # type: ignore[attr-defined]
        finally:
            host.shutdown()
            thread.join()


def test_only_what_was_named_is_resolved() -> None:
    hosts = AllowedHosts(["labels.example.org", "http://127.0.0.1:8080"])

    assert hosts.resolve("https://labels.example.org/a.png") == "https://labels.example.org/a.png"
    assert hosts.resolve("HTTP://Labels.Example.org:80/a.png")
    assert hosts.resolve("/a.png", "http://127.0.0.1:8080") == "http://127.0.0.1:8080/a.png"
    assert hosts.resolve("/a.png", "http://elsewhere") == "http://labels.example.org:80/a.png"
    for address in (
        "http://labels.example.org:8080/a.png",
        "https://127.0.0.1:8080/a.png",
        "http://127.0.0.1:8081/a.png",
        "http://labels.example.org.evil.net/a.png",
        "http://evil.net/?labels.example.org",
        "http://labels.example.org@evil.net/a.png",
        "http://evil.net\\@labels.example.org/a.png",
        "ftp://labels.example.org/a.png",
        "http://labels.example.org:99999/a.png",
        "http://[::1/a.png",
    ):
        with pytest.raises(RequestError):
            hosts.resolve(address)


@pytest.mark.parametrize("host", ["", "a b", "host/path", "ftp://host", "host:port", "u@host"])
def test_a_host_is_a_host(host: str) -> None:
    with pytest.raises(OptionError, match="is not a host"):
        AllowedHosts([host])


def test_a_file_is_fetched_with_its_token_and_no_further() -> None:
    with files() as (host, seen):
        hosts = AllowedHosts([host])
        hosts.remember_token(f"http://{host}", "secret")
        hosts.remember_token("http://elsewhere.org", "other")
        buffer = io.BytesIO()
        size = hosts.fetch(f"http://{host}/moved", buffer, 1 << 20)
        with pytest.raises(RequestError, match="fetches nothing there"):
            hosts.fetch(f"http://{host}/away", io.BytesIO(), 1 << 20)
        with pytest.raises(RequestError, match="longer"):
            hosts.fetch(f"http://{host}/data/upload/1/a.png", io.BytesIO(), 100)
        with pytest.raises(RequestError, match="status 404"):
            hosts.fetch(f"http://{host}/none", io.BytesIO(), 100)

    assert buffer.getvalue() == picture_bytes()
    assert size == len(picture_bytes())
    assert seen[0] == ("/moved", "Token secret")


def test_a_host_that_is_away_is_one_sentence() -> None:
    with pytest.raises(RequestError, match="could not be fetched"):
        AllowedHosts(["127.0.0.1:9"]).fetch("http://127.0.0.1:9/a.png", io.BytesIO(), 100)


def test_label_studios_files_are_fetched_where_it_was_allowed(tmp_path: Any) -> None:
    context = {"result": [keypoint(shapes()[0])]}
    with files() as (host, seen), running(tmp_path, allow_hosts=(host,)) as server:
        setup = {"hostname": f"http://{host}", "access_token": "secret", "project": "1"}
        server.client.post("/setup", json=setup)
        for address in ("/data/upload/1/a.png", f"http://{host}/data/upload/1/b.png"):
            tasks = [{"id": 1, "data": {"picture": address}}]
            (found,) = result(predict(server, context, config(), tasks=tasks))
            assert found["type"] == "brushlabels"
        missing = [{"id": 1, "data": {"picture": "/none.png"}}]
        refused = predict(server, context, config(), tasks=missing)

    assert seen[0] == ("/data/upload/1/a.png", "Token secret")
    assert "status 404" in error_of(refused)["message"]
