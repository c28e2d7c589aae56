"""Limits: bodies, uploads, sessions, idle time, loaded sessions."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from samgraph.errors import OutputError
from samgraph.serve.options import ServeOptions
from samgraph.serve.store import RECORD, SessionStore
from samgraph.serve.uploads import safe_name
from tests.serve.serving import Running, connected, error_of, image_id, running
from tests.serve.test_images import png

MEGABYTE = 1 << 20


def test_an_upload_is_refused_while_it_arrives(tmp_path: Path) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 64 * MEGABYTE:
            sent += 65536
            yield bytes(65536)

    with running(tmp_path, max_upload_mb=1) as server:
        with suppress(httpx.TransportError):  # the server closes before everything is sent
            reply = server.client.post("/api/images", content=endless())
            assert (reply.status_code, error_of(reply)["code"]) == (413, "too_large")
        assert sent < 16 * MEGABYTE
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_declared_length_is_refused_at_once(tmp_path: Path) -> None:
    with running(tmp_path, max_upload_mb=1) as server:
        for headers in ({}, {"content-type": "multipart/form-data; boundary=x"}):
            reply = raw(server, "POST /api/images", {"content-length": str(2**40), **headers})
            assert b" 413 " in reply.split(b"\r\n")[0]


def test_a_form_is_limited_too(tmp_path: Path) -> None:
    with running(tmp_path, max_upload_mb=1) as server:
        reply = server.client.post("/api/images", files={"file": bytes(3 * MEGABYTE)})
        assert reply.status_code == 413
        for files in ({"other": b"x"}, {"file": b""}):
            assert server.client.post("/api/images", files=files).status_code == 400
        broken = server.client.post(
            "/api/images", content=b"--x", headers={"content-type": "multipart/form-data"}
        )
        assert broken.status_code == 400


def test_a_json_body_is_limited(tmp_path: Path) -> None:
    with running(tmp_path, max_body_mb=0.01) as server:
        name = image_id(server.client)
        reply = server.client.post(f"/api/images/{name}/predict", content=b" " * 20_000)

    assert reply.status_code == 413


def test_a_silent_client_is_given_up(tmp_path: Path) -> None:
    with running(tmp_path, body_seconds=0.2) as server:
        reply = raw(server, "POST /api/images", {"content-length": "100"}, b"abc")

    assert b" 408 " in reply.split(b"\r\n")[0]


def raw(server: Running, line: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """A reply to a request that httpx would not send."""
    with connected(server) as connection:
        lines = [f"{line} HTTP/1.1", "host: 127.0.0.1", *(f"{k}: {v}" for k, v in headers.items())]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return connection.recv(65536)


def test_the_least_recently_used_sessions_go_first(tmp_path: Path) -> None:
    with running(tmp_path, max_sessions=2) as server:
        first, second = image_id(server.client), image_id(server.client)
        assert server.client.get(f"/api/images/{first}").status_code == 200
        third = image_id(server.client)

        assert server.client.get(f"/api/images/{second}").status_code == 410
        assert {entry["id"] for entry in server.client.get("/api/sessions").json()} == {
            first,
            third,
        }
        assert not (tmp_path / second).exists()


def test_bytes_on_disk_are_bounded(tmp_path: Path) -> None:
    with running(tmp_path, max_disk_mb=0.1) as server:  # a cat takes 36 KB
        names = [image_id(server.client) for _ in range(4)]
        kept = {entry["id"] for entry in server.client.get("/api/sessions").json()}

    assert kept == set(names[2:])


def test_idle_sessions_are_deleted(tmp_path: Path) -> None:
    with running(tmp_path, idle_seconds=3600) as server:
        old, new = image_id(server.client), image_id(server.client)
    os.utime(tmp_path / old / RECORD, (time.time() - 7200,) * 2)

    with running(tmp_path, idle_seconds=3600) as server:
        assert [entry["id"] for entry in server.client.get("/api/sessions").json()] == [new]


def test_few_sessions_are_in_memory(tmp_path: Path) -> None:
    with running(tmp_path, max_loaded=2) as server:
        names = [image_id(server.client) for _ in range(4)]
        assert server.service.store.loaded == 2
        click = {"points": [[220, 150]]}
        replies = [server.client.post(f"/api/images/{n}/predict", json=click) for n in names]
        assert len({reply.json()["masks"][0]["rle"]["counts"] for reply in replies}) == 1
        assert server.service.store.loaded == 2


def test_a_folder_has_one_server(tmp_path: Path) -> None:
    with running(tmp_path), pytest.raises(OutputError, match="another server"):
        SessionStore(ServeOptions(folder=tmp_path), lambda _: None)  # type: ignore[arg-type,return-value]


def test_damaged_sessions_are_left_alone(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        good = image_id(server.client)
    for name, text in (("i1", "{"), ("i2", "[]"), ("i3", '{"kind": "tree"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / RECORD).write_text(text)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".new-0").mkdir()

    with running(tmp_path) as server:
        assert [entry["id"] for entry in server.client.get("/api/sessions").json()] == [good]
    assert (tmp_path / "i1").exists()
    assert not (tmp_path / ".new-0").exists()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\x\\y.png", "y.png"),
        ("", "file"),
        ("..", "file"),
        ("/", "file"),
        ("a\0b\n\x1b[31m.png", "ab\\n\\x1b[31m.png"),
        ("\udcff.png", "?.png"),
        (None, "file"),
    ],
)
def test_names_of_clients_are_only_shown(given: str | None, name: str) -> None:
    assert safe_name(given, "file") == name


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as server:

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        reply = server.client.post("/api/images", content=png())
        monkeypatch.undo()

        assert (reply.status_code, error_of(reply)["code"]) == (507, "disk_full")
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
        assert server.client.post("/api/images", content=png()).status_code == 201
