"""Shared by the protocols: the model behind its gate, encoded images, and error replies."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from samgraph.errors import SamgraphError
from samgraph.predict.image.encoded import EncodedImage
from samgraph.serve.protocols.pictures import EncodedImages, digest
from samgraph.serve.protocols.remote import AllowedHosts
from samgraph.serve.replies import ErrorReply, Problem, error_reply
from samgraph.serve.security import ENDPOINT
from samgraph.serve.service import Service
from samgraph.serve.uploads import decode_json, read_body

# At most this many larger bodies are read at the same time, because they are in memory.
LONG_BODY, MOST_LONG_BODIES = 8 << 20, 4
# How long the server waits for frames that are running when it stops.
CLOSE_SECONDS = 20.0

Result = TypeVar("Result")
Body = TypeVar("Body", bound=msgspec.Struct)
Handler = Callable[[Request], Awaitable[Response]]
ErrorForm = Callable[[int, Problem], tuple[int, object]]


class Backend:
    """The model as annotation tools use it: bytes in, clicks answered, frames tracked."""

    def __init__(self, service: Service) -> None:
        self.service, self.model, self.options = service, service.model, service.options
        self.images = EncodedImages()
        self.hosts = AllowedHosts(service.options.allow_hosts)
        self.closing: list[Callable[[], object]] = []  # what to do when the server stops
        self._tasks: set[asyncio.Task[None]] = set()
        self._frames = asyncio.Lock()
        self._long_bodies = asyncio.Semaphore(MOST_LONG_BODIES)

    @property
    def name(self) -> str:
        """The name of the model."""
        return str(self.model.config.name)

    async def body(self, request: Request, kind: type[Body]) -> Body:
        """The JSON body of a request.

        Raises:
            RequestError: It is too long, not JSON, or not what the struct says.
        """
        limit, seconds = self.options.max_tool_body_bytes, self.options.body_seconds
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) <= LONG_BODY:
            return decode_json(await read_body(request, limit, seconds) or b"{}", kind)
        self.service.gate.check()
        async with self._long_bodies:
            data = await read_body(request, limit, seconds) or b"{}"
            return await to_thread.run_sync(decode_json, data, kind)

    async def work(self, request: Request, function: Callable[[], Result]) -> Result:
        """Run something short on the model, in a thread, once the gate admits it.

        Raises:
            RequestError: The server is busy.
        """
        return await self.service.work(request, self._click, function)

    async def frame(self, function: Callable[[], Result]) -> Result:
        """Run a part of something long, such as one frame of a track: clicks come first.

        One at a time, in the order they came, so that at most one thread waits.
        """
        async with self._frames:
            return await to_thread.run_sync(self._frame, function)

    async def image(self, request: Request, data: bytes) -> EncodedImage:
        """An image, encoded unless the same bytes were sent before.

        Raises:
            ImageError: It cannot be read.
            RequestError: The server is busy.
        """
        key = digest(data)
        found = self.images.get(key)
        if found is None:
            most = self.options.max_pixels
            found = await self.work(request, lambda: self.model.image(data, max_pixels=most))
            self.images.put(key, found)
        return found

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the background; the event loop itself does not hold on to it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Close all videos; tracks end with the frame that is running."""
        for close in self.closing:
            close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)

    def _click(self, function: Callable[[], Result]) -> Result:
        with self.service.turns.click():
            return function()

    def _frame(self, function: Callable[[], Result]) -> Result:
        with self.service.turns.frame():
            return function()


def route(path: str, handler: Handler, form: ErrorForm, method: str = "POST") -> Route:
    """A route whose errors have the tool's own form."""

    @functools.wraps(handler)
    async def endpoint(request: Request) -> Response:
        request.scope[ENDPOINT] = path
        try:
            return await handler(request)
        except SamgraphError as error:
            ours = error_reply(request, error)
            problem = msgspec.json.decode(bytes(ours.body), type=ErrorReply).error
            status, body = form(ours.status_code, problem)
            headers = {k: v for k, v in ours.headers.items() if k == "retry-after"}
            return Response(msgspec.json.encode(body), status, headers, "application/json")

    return Route(path, endpoint, methods=[method])


def sentence(problem: Problem) -> str:
    """The message and the hint in one line."""
    return problem.message if problem.hint is None else f"{problem.message}; {problem.hint}"
