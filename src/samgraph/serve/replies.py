"""Errors as replies: `{"error": {"code", "message", "hint"}}` and a status.

Library errors become 400 or 422; a `RequestError` has its own status.
"""

import logging
import re
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from samgraph.errors import (
    CapacityError,
    EngineError,
    OutputError,
    SamgraphError,
)

LOG = logging.getLogger("samgraph.serve")

JSON = "application/json"
CODES = {
    400: "bad_input",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    410: "gone",
    413: "too_large",
    415: "unsupported",
    422: "unusable",
    500: "bug",
    503: "busy",
    504: "expired",
    507: "disk_full",
}


# Key under which the middleware stores the id of a request, which is also in the reply.
REQUEST_ID = "samgraph.request_id"
# Replies after which the rest of the body is not read.
UNREAD = (408, 413)
QUOTED_PATH = re.compile(r"`[^`]*[/\\\\]([^`/\\\\]*)`")


class RequestError(SamgraphError):
    """A request cannot be answered; `status` is that of the reply."""

    def __init__(
        self,
        status: int,
        what: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(what, hint=hint)
        self.status, self.code, self.retry_after = status, code or CODES[status], retry_after


class Problem(msgspec.Struct):
    """What went wrong, and what to do."""

    code: str
    message: str
    hint: str | None = None


class ErrorReply(msgspec.Struct):
    """The body of every reply that is not a success."""

    error: Problem


def json_reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A struct, or plain values, as JSON."""
    return Response(msgspec.json.encode(value), status, headers, JSON)


def error_reply(request: Request, error: Exception) -> Response:
    """The reply for an error; an unexpected error is logged and not shown."""
    if isinstance(error, RequestError):
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        if error.status in UNREAD:
            headers["connection"] = "close"
        return _reply(error.status, error.code, error.what, error.hint, headers)
    if isinstance(error, HTTPException):
        code = CODES.get(error.status_code, "refused")
        return _reply(error.status_code, code, str(error.detail), None, dict(error.headers or {}))
    if isinstance(error, SamgraphError):
        return _library_error(error)
    number = request.scope.get(REQUEST_ID, "")
    LOG.error("request %s, %s %s, failed", number, request.method, request.url.path, exc_info=error)
    return _reply(500, "bug", "the server failed to answer", "its log says where")


def message_of(error: SamgraphError) -> str:
    """The error in one sentence: what, got and expected."""
    parts = [error.what]
    if error.got is not None:
        parts.append(f"got {error.got}")
    if error.expected is not None:
        parts.append(f"expected {error.expected}")
    return without_paths("; ".join(parts))


def without_paths(text: str) -> str:
    """The text with files of the server by their last names; an upload is `the file`."""
    return QUOTED_PATH.sub(lambda m: "the file" if m[1] == "upload" else f"`{m[1]}`", text)


def _library_error(error: SamgraphError) -> Response:
    status = 400
    if isinstance(error, OutputError):
        status = 507 if "space" in str(error.got) else 400
    elif isinstance(error, EngineError):
        status = 500
    elif isinstance(error, CapacityError):
        status = 422
    hint = None if error.hint is None else without_paths(error.hint)
    return _reply(status, CODES[status], message_of(error), hint)


def _reply(
    status: int, code: str, message: str, hint: str | None, headers: dict[str, str] | None = None
) -> Response:
    return json_reply(ErrorReply(Problem(code, message, hint)), status, headers)
