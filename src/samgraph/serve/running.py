"""The server as a process: it listens, prints its address, and stops by signal.

The first signal finishes running work and saves; the second stops at once.
"""

import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from samgraph.errors import OptionError
from samgraph.predict.model import Model
from samgraph.serve.app import make_app
from samgraph.serve.options import ServeOptions
from samgraph.serve.service import Service

GRACE_SECONDS = 25
BACKLOG = 512


class Server(uvicorn.Server):
    """uvicorn that notifies the service when it stops, and the caller when it listens."""

    def __init__(
        self, config: uvicorn.Config, service: Service, listening: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._service, self._listening = service, listening

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Refuse new work from now on."""
        self._service.stop()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            self._listening()


def run(model: Model, options: ServeOptions, listening: Callable[[str], object]) -> None:
    """Serve until a signal comes; `listening` gets the address of the page.

    Raises:
        OptionError: The address cannot be listened on.
    """
    bound = bind(options)
    port = bound.getsockname()[1]
    app = make_app(model, options)
    config = uvicorn.Config(
        app,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
    )
    server = Server(config, app.state.service, lambda: listening(address(options, port)))
    server.run(sockets=[bound])


def address(options: ServeOptions, port: int) -> str:
    """Where the page is, with the token where there is one."""
    name = f"[{options.host}]" if ":" in options.host else options.host
    if name in ("0.0.0.0", "[::]"):  # noqa: S104  (all addresses; this machine has this one)
        name = "127.0.0.1"
    token = f"?token={options.token}" if options.token else ""
    return f"http://{name}:{port}/{token}"


def bind(options: ServeOptions) -> socket.socket:
    """A socket that listens; raises as `run`."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY; without it every reply takes 40 ms more.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((options.host, options.port))
        bound.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        bound.close()
        raise OptionError(
            f"`{options.host}:{options.port}` cannot be listened on",
            got=(getattr(error, "strerror", None) or str(error)).lower(),
            hint="choose another port with --port; 0 takes a free one",
        ) from error
    return bound
