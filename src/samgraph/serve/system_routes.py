"""The endpoints beside images and videos: the page, what the server is, and how it is."""

import re
from pathlib import Path
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from samgraph.serve.effects import effect_list
from samgraph.serve.endpoint import Endpoint
from samgraph.serve.exports import formats_info
from samgraph.serve.replies import RequestError, json_reply
from samgraph.serve.samples import known_samples
from samgraph.serve.schema import (
    Health,
    InfoReply,
    Limits,
    ModelInfo,
    SampleInfo,
    SessionReply,
)
from samgraph.serve.service import Service
from samgraph.version import __version__

PAGE: Final = Path(__file__).resolve().parent / "page"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


async def get_page(service: Service, request: Request) -> Response:
    """The page."""
    return FileResponse(PAGE / "index.html", media_type="text/html")


async def get_health(service: Service, request: Request) -> Response:
    """Whether the process answers."""
    return json_reply(Health("ok"))


async def get_ready(service: Service, request: Request) -> Response:
    """Whether the model is warm, and the server not stopping."""
    if service.is_stopping:
        raise RequestError(503, "the server is stopping", code="stopping", retry_after=10)
    if not service.is_ready:
        raise RequestError(503, "the model is being prepared", code="starting", retry_after=1)
    return json_reply(Health("ready"))


async def get_metrics(service: Service, request: Request) -> Response:
    """Counters for Prometheus."""
    service.measure()
    return Response(service.metrics.text(), media_type=PROMETHEUS)


async def get_info(service: Service, request: Request) -> Response:
    """What this server is."""
    options, session = service.options, service.core.session
    samples = [
        SampleInfo(sample.id, sample.title, sample.kind, f"/api/samples/{sample.id}/thumbnail")
        for sample in known_samples()
    ]
    reply = InfoReply(
        version=__version__,
        model=ModelInfo(service.core.config.name, service.core.config.image_size),
        engine=session.engine.name,
        device=device_of(session.reason),
        precision=session.precision,
        limits=Limits(
            options.max_upload_bytes,
            options.max_pixels,
            options.max_sessions,
            options.idle_seconds,
        ),
        formats=formats_info(),
        effects=effect_list(),
        samples=samples,
    )
    return json_reply(reply)


def device_of(reason: str) -> str:
    """The device in a session's reason, such as `openvino on the cpu, 2 threads`."""
    found = re.search(r" on (?:the )?([\w:]+)", reason)
    return found.group(1) if found else "cpu"


async def get_thumbnail(service: Service, request: Request) -> Response:
    """A small picture of a sample."""
    sample = service.samples.find(request.path_params["id"])
    data = await to_thread.run_sync(service.samples.thumbnail, sample)
    return Response(data, media_type="image/jpeg", headers={"cache-control": "max-age=86400"})


async def get_sessions(service: Service, request: Request) -> Response:
    """All sessions, the latest used first."""
    return json_reply(
        [
            SessionReply(entry.id, entry.record.kind, entry.record.name, entry.bytes, entry.used)
            for entry in service.store.entries()
        ]
    )


ENDPOINTS = (
    Endpoint("GET", "/", get_page, "the page", media="text/html"),
    Endpoint("GET", "/healthz", get_health, "whether the process answers", reply=Health),
    Endpoint("GET", "/readyz", get_ready, "whether the model is warm", reply=Health),
    Endpoint("GET", "/metrics", get_metrics, "counters for Prometheus", media="text/plain"),
    Endpoint("GET", "/api/info", get_info, "what this server is", reply=InfoReply),
    Endpoint(
        "GET", "/api/samples/{id}/thumbnail", get_thumbnail, "a small picture of a sample",
        media="image/jpeg",
    ),
    Endpoint(
        "GET", "/api/sessions", get_sessions, "all sessions, the latest used first",
        reply=list[SessionReply],
    ),
)  # fmt: skip
