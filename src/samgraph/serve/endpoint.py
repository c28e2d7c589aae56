"""An endpoint: its path, what it takes and gives, and what answers it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from samgraph.serve.replies import JSON
from samgraph.serve.service import Service

Handler = Callable[[Service, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter in the address; `schema` is JSON Schema."""

    name: str
    schema: dict[str, Any]
    summary: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path.

    Args:
        method: GET, POST, PUT, PATCH or DELETE.
        path: With `{id}` or `{n:int}` for what varies.
        handler: Answers.
        summary: What it does, in one line.
        body: The struct of a JSON body; `bytes` for a file; None for no body.
        reply: The struct of a JSON reply; None for other media.
        status: Of a success.
        media: The media type of a success.
        queries: Parameters in the address.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    body: Any = None
    reply: Any = None
    status: int = 200
    media: str = JSON
    queries: tuple[Query, ...] = ()
