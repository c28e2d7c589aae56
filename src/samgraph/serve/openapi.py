"""The OpenAPI 3.1 document, made from the table of endpoints and the structs of their bodies."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from samgraph.serve.endpoint import Endpoint
from samgraph.serve.replies import JSON, ErrorReply
from samgraph.version import __version__

PARAMETER = re.compile(r"{(\w+)(?::(\w+))?}")
REFERENCE = "#/components/schemas/{name}"
BINARY = "application/octet-stream"


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The document of these endpoints."""
    types = [e.body for e in endpoints if e.body not in (None, bytes)]
    types += [e.reply for e in endpoints if e.reply is not None]
    kinds = list(dict.fromkeys([*types, ErrorReply]))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schema_of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        path = PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "samgraph",
            "version": __version__,
            "description": "Segment images and track objects. Coordinates are pixels (x, y); "
            "masks are COCO compressed run lengths.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(endpoint: Endpoint, schema_of: dict[Any, Any]) -> dict[str, Any]:
    media: dict[str, Any] = {endpoint.media: {}}
    if endpoint.reply is not None:
        media = {JSON: {"schema": schema_of[endpoint.reply]}}
    success: dict[str, Any] = {"description": "done"}
    if endpoint.status != 204:
        success["content"] = media
    error = {"description": "refused", "content": {JSON: {"schema": schema_of[ErrorReply]}}}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _operation_id(endpoint),
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": {str(endpoint.status): success, "default": error},
    }
    if endpoint.body is bytes:
        operation["requestBody"] = {
            "content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}
        }
    elif endpoint.body is not None:
        operation["requestBody"] = {"content": {JSON: {"schema": schema_of[endpoint.body]}}}
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", PARAMETER.sub("", endpoint.path)) or ["page"]
    return "_".join([endpoint.method.lower(), *(word for word in words if word != "api")])


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0} if kind == "int" else {"type": "string"},
        }
        for name, kind in PARAMETER.findall(endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": query.name, "in": "query", "description": query.summary, "schema": query.schema}
        for query in endpoint.queries
    ]
