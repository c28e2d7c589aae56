"""Access control, and the security headers of every reply.

Only this machine has access, unless there is a token. Requests that change something must come from
the page itself: a foreign `Origin` or `Sec-Fetch-Site` is refused, and so is a foreign `Host` (a
name that somebody else's DNS points at this machine).
"""

import base64
import binascii
import hmac
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samgraph.serve.metrics import Metrics
from samgraph.serve.options import LOOPBACK_NAMES, ServeOptions
from samgraph.serve.replies import REQUEST_ID, RequestError, error_reply

COOKIE = "samgraph_token"
OPEN_PATHS = ("/healthz", "/readyz", "/health")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
# Key under which a handler stores the path of its endpoint, for the metrics.
ENDPOINT = "samgraph.endpoint"


class Guard:
    """ASGI middleware: access, headers, a request id, and the count of replies."""

    def __init__(self, app: ASGIApp, options: ServeOptions, metrics: Metrics) -> None:
        self._app, self._options, self._metrics = app, options, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer refused requests, and pass on the others."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, request_id = time.monotonic(), secrets.token_hex(8)
        scope[REQUEST_ID] = request_id

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-cache")
                headers["x-request-id"] = request_id
                endpoint = scope.get(ENDPOINT, "other")
                self._metrics.requests.labels(endpoint, str(message["status"])).inc()
                self._metrics.seconds.labels(endpoint).observe(time.monotonic() - started)
            await send(message)

        request = Request(scope, receive)
        try:
            self._check(scope["method"], scope["path"], request.headers)
        except RequestError as error:
            if self._opens_page(request):
                await self._signed_in(request)(scope, receive, send_with_headers)
                return
            await error_reply(request, error)(scope, receive, send_with_headers)
            return
        if scope["path"] == "/" and "token" in request.query_params and self._options.token:
            await self._signed_in(request)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _check(self, method: str, path: str, headers: Headers) -> None:
        """Refuse a client without access.

        Raises:
            RequestError: The host or origin is foreign (403), or the token is missing (401).
        """
        host = headers.get("host", "")
        if self._options.token is None and _name_of(host) not in self._names:
            raise RequestError(403, "this name is not one of the server's", hint="use 127.0.0.1")
        if method not in SAFE_METHODS:
            check_origin(headers, host)
        if self._options.token is not None and path not in OPEN_PATHS:
            given = _token_of(headers)
            if given is None or not _is_equal(given, self._options.token):
                raise RequestError(
                    401, "a token is needed", hint="open the page as /?token=..., or send a Bearer"
                )

    @property
    def _names(self) -> tuple[str, ...]:
        return (*LOOPBACK_NAMES, self._options.host)

    def _opens_page(self, request: Request) -> bool:
        """Whether this is the page, opened with the right token in its address."""
        token = self._options.token
        given = request.query_params.get("token")
        is_page = request.method == "GET" and request.url.path == "/"
        return bool(is_page and token and given and _is_equal(given, token))

    def _signed_in(self, request: Request) -> ASGIApp:
        """To the page without the token in its address; the browser keeps it as a cookie."""
        from starlette.responses import RedirectResponse

        rest = [(k, v) for k, v in parse_qsl(request.url.query) if k != "token"]
        reply = RedirectResponse("/" + (f"?{urlencode(rest)}" if rest else ""), 303)
        if self._opens_page(request):
            token = str(self._options.token)
            secure = request.url.scheme == "https"
            reply.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure)
        return reply


def check_origin(headers: Headers, host: str) -> None:
    """Refuse a request that another site made the browser send.

    Raises:
        RequestError: The origin is foreign.
    """
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    foreign = site is not None and site not in ("same-origin", "none")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        foreign = True
    if foreign:
        raise RequestError(403, "requests from other sites are refused")


def _name_of(host: str) -> str:
    """A host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _token_of(headers: Headers) -> str | None:
    """A Bearer token, the page's cookie, or what annotation tools can send.

    Label Studio has a user and a password (any user), X-AnyLabeling its own header.
    """
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        return _password_of(value)
    if headers.get("token"):
        return headers["token"]
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if cookie is None else cookie.value


def _password_of(credentials: str) -> str | None:
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return text.partition(":")[2]


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
