"""A server of the tests: the application under uvicorn on a free port, in a thread."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from samgraph.predict.model import Model, load
from samgraph.serve.app import make_app
from samgraph.serve.options import ServeOptions
from samgraph.serve.service import Service

SECONDS = 180.0  # as long as a busy machine may need; nothing is faster for it being short


def until(is_so: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@cache
def nano() -> Model:
    """The built-in model, loaded once for all tests."""
    return load(threads=2)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that listens, a client that talks to it, and its state."""

    url: str
    client: httpx.Client
    service: Service
    folder: Path


@contextmanager
def running(
    folder: Path, *, model: Any = None, warm: bool = False, headers: Any = None, **options: Any
) -> Iterator[Running]:
    """A server for the length of the block; it is stopped as by a signal."""
    chosen = replace(ServeOptions(folder=folder, port=0), **options)
    app = make_app(nano() if model is None else model, chosen, warm=warm)
    service: Service = app.state.service
    config = uvicorn.Config(app, port=0, log_level="error", access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(
            base_url=url, timeout=SECONDS, headers=headers, trust_env=False
        ) as client:
            yield Running(url, client, service, folder)
    finally:
        service.stop()
        server.should_exit = True
        thread.join(SECONDS)
        assert not thread.is_alive(), "the server did not stop"


def connected(server: Running) -> socket.socket:
    """A connection to the server, for what httpx would not do."""
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS)


def image_id(client: httpx.Client, sample: str = "cat") -> str:
    """An image session of a sample."""
    reply = client.post("/api/images", params={"sample": sample})
    assert reply.status_code == 201, reply.text
    found: str = reply.json()["id"]
    return found


def error_of(reply: httpx.Response) -> dict[str, Any]:
    """The error in a reply."""
    found: dict[str, Any] = reply.json()["error"]
    assert found["message"]
    return found
