"""The application: the table of endpoints, made into routes.

    app = make_app(samgraph.load(), ServeOptions())

Files of the page are under `/static`; the OpenAPI document is made from the table.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from samgraph.predict.model import Model
from samgraph.serve import image_routes, protocols, system_routes, video_endpoints
from samgraph.serve.endpoint import Endpoint
from samgraph.serve.openapi import openapi_document
from samgraph.serve.options import ServeOptions
from samgraph.serve.protocols.backend import Backend
from samgraph.serve.replies import error_reply, json_reply
from samgraph.serve.security import ENDPOINT, Guard
from samgraph.serve.service import Service

LOG = logging.getLogger("samgraph.serve")

# Interval of the check for idle sessions, in seconds.
SWEEP_SECONDS = 60.0
ENDPOINTS: tuple[Endpoint, ...] = (
    *system_routes.ENDPOINTS,
    *image_routes.ENDPOINTS,
    *video_endpoints.ENDPOINTS,
)


def make_app(model: Model, options: ServeOptions, *, warm: bool = True) -> Starlette:
    """The ASGI application; its `state.service` is the `Service`.

    Args:
        model: The model that answers.
        options: Address, access and limits.
        warm: Compile what a first click needs when the application starts.
    """
    service = Service(model, options)
    tools = Backend(service)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_sweep(service))]
        if warm:
            tasks.append(asyncio.create_task(_warm(service)))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await tools.close()
            await to_thread.run_sync(service.close)

    document = openapi_document(ENDPOINTS)

    async def get_openapi(request: Request) -> Response:
        return json_reply(document)

    routes = [
        Route(each.path, _answering(service, each), methods=[each.method]) for each in ENDPOINTS
    ]
    app = Starlette(
        routes=[
            *routes,
            *protocols.routes(tools),
            Route("/openapi.json", get_openapi),
            Mount("/static", StaticFiles(directory=system_routes.PAGE)),
        ],
        middleware=[Middleware(Guard, options, service.metrics)],
        exception_handlers={HTTPException: _refused, Exception: _refused},
        lifespan=lifespan,
    )
    app.state.service = service
    return app


def _answering(service: Service, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """The handler of a route; every error becomes a reply."""

    async def answer(request: Request) -> Response:
        request.scope[ENDPOINT] = endpoint.path
        try:
            return await endpoint.handler(service, request)
        except Exception as error:
            return error_reply(request, error)

    return answer


async def _refused(request: Request, error: Exception) -> Response:
    return error_reply(request, error)


async def _warm(service: Service) -> None:
    try:
        await to_thread.run_sync(service.warm_up)
    except Exception:
        LOG.exception("the model could not be prepared")


async def _sweep(service: Service) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        await to_thread.run_sync(service.store.sweep)
