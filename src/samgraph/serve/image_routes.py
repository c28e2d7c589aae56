"""The endpoints of images: upload, click, everything, document, export."""

import time
from pathlib import Path

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from samgraph.media.files import write_atomically
from samgraph.media.image.reading import image_size, read_image
from samgraph.predict.image.encoded import encode_image
from samgraph.serve.endpoint import Endpoint, Query
from samgraph.serve.exports import export_image
from samgraph.serve.image_sessions import PICTURE, ImageSession, picture_bytes
from samgraph.serve.replies import json_reply
from samgraph.serve.schema import (
    Document,
    EverythingBody,
    ImageExportBody,
    ImageReply,
    MasksReply,
    PredictBody,
    PredictReply,
)
from samgraph.serve.service import Service
from samgraph.serve.store import DOCUMENT, UPLOAD, Entry, Record
from samgraph.serve.uploads import decode_json, read_body, read_json, receive, safe_name

PNG_BEGINNING = b"\x89PNG"
SAMPLE = Query("sample", {"type": "string"}, "the id of a sample instead of a file")


async def post_image(service: Service, request: Request) -> Response:
    """Upload an image and encode it."""
    service.gate.check()
    sample = request.query_params.get("sample")
    with service.store.incoming() as folder:
        if sample is not None:
            found = service.samples.find(sample, "image")
            name = found.file
            data = await to_thread.run_sync(service.samples.path(found).read_bytes)
            (folder / UPLOAD).write_bytes(data)
        else:
            limit, seconds = service.options.max_upload_bytes, service.options.body_seconds
            upload = (await receive(request, folder, limit, seconds, "image"))["file"]
            service.metrics.uploaded.inc(upload.size)
            name = upload.name
            upload.path.rename(folder / UPLOAD)
        reply = await service.work(request, _encode, service, folder, name)
    return json_reply(reply, 201)


def _encode(service: Service, folder: Path, name: str) -> ImageReply:
    """Create a session of an uploaded image."""
    began = time.monotonic()
    pixels = read_image(folder / UPLOAD, max_pixels=service.options.max_pixels)
    with service.turns.click():
        image = encode_image(service.core, pixels, name=name)
    height, width = image.size_hw
    record = Record(kind="image", name=name, width=width, height=height)
    entry = service.store.add(folder, record, ImageSession(image, service.turns))
    return ImageReply(entry.id, name, width, height, round(time.monotonic() - began, 3))


async def get_image(service: Service, request: Request) -> Response:
    """An image and its document."""
    entry = service.store.find(request.path_params["id"], "image")
    document = await to_thread.run_sync(_document, entry)
    record = entry.record
    raw = None if document is None else msgspec.Raw(document)
    reply = ImageReply(entry.id, record.name, record.width, record.height, document=raw)
    return json_reply(reply)


def _document(entry: Entry) -> bytes | None:
    path = entry.folder / DOCUMENT
    return path.read_bytes() if path.exists() else None


async def get_picture(service: Service, request: Request) -> Response:
    """The image, upright, as browsers show it."""
    entry = service.store.find(request.path_params["id"], "image")
    path = await service.work(request, _picture, entry, gate=service.media_gate)
    return FileResponse(path, headers={"cache-control": "private, max-age=86400"})


def _picture(entry: Entry) -> Path:
    for suffix in (".jpg", ".png"):
        known = entry.folder / f"{PICTURE}{suffix}"
        if known.exists():
            return known
    with (entry.folder / UPLOAD).open("rb") as file:
        is_png = file.read(4) == PNG_BEGINNING
    height, width = image_size(entry.folder / UPLOAD)
    pixels = read_image(entry.folder / UPLOAD, max_pixels=max(1, height * width))
    data, suffix = picture_bytes(pixels, is_png)
    path = entry.folder / f"{PICTURE}{suffix}"
    write_atomically(path, data)
    return path


async def delete_image(service: Service, request: Request) -> Response:
    """Delete an image."""
    entry = service.store.find(request.path_params["id"], "image")
    await to_thread.run_sync(service.delete, entry)
    return Response(status_code=204)


async def predict_image(service: Service, request: Request) -> Response:
    """The masks of a prompt."""
    name = request.path_params["id"]
    service.store.find(name, "image")
    options = service.options
    body = await read_json(request, PredictBody, options.max_body_bytes, options.body_seconds)
    return json_reply(await service.work(request, _predict, service, name, body))


def _predict(service: Service, name: str, body: PredictBody) -> PredictReply:
    with service.image(name) as session:
        return session.predict(body)


async def everything_image(service: Service, request: Request) -> Response:
    """Automatic masks."""
    name = request.path_params["id"]
    service.store.find(name, "image")
    options = service.options
    body = await read_json(request, EverythingBody, options.max_body_bytes, options.body_seconds)
    gate = service.long_gate
    return json_reply(await service.work(request, _everything, service, name, body, gate=gate))


def _everything(service: Service, name: str, body: EverythingBody) -> MasksReply:
    with service.image(name) as session:
        return session.everything(body)


async def put_document(service: Service, request: Request) -> Response:
    """Store the page's objects."""
    entry = service.store.find(request.path_params["id"], "image")
    options = service.options
    data = await read_body(request, options.max_body_bytes, options.body_seconds)
    decode_json(data, Document)
    await to_thread.run_sync(write_atomically, entry.folder / DOCUMENT, data)
    return Response(status_code=204)


async def export(service: Service, request: Request) -> Response:
    """Masks in a file."""
    entry = service.store.find(request.path_params["id"], "image")
    options = service.options
    body = await read_json(request, ImageExportBody, options.max_body_bytes, options.body_seconds)
    gate = service.long_gate
    file = await service.work(request, export_image, entry, body, gate=gate)
    return Response(file.data, media_type=file.media, headers=attachment(file.name))


def attachment(name: str) -> dict[str, str]:
    """The header that has a browser save a reply under a name."""
    from urllib.parse import quote

    plain = safe_name(name, "file").encode("ascii", "replace").decode().replace('"', "'")
    plain = plain.replace("\\", "_").replace("?", "_")
    encoded = quote(name, safe="")
    return {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"}


ENDPOINTS = (
    Endpoint(
        "POST", "/api/images", post_image, "upload an image and encode it",
        body=bytes, reply=ImageReply, status=201, queries=(SAMPLE,),
    ),
    Endpoint("GET", "/api/images/{id}", get_image, "an image and its document", reply=ImageReply),
    Endpoint(
        "GET", "/api/images/{id}/picture", get_picture, "the upright image", media="image/*"
    ),
    Endpoint("DELETE", "/api/images/{id}", delete_image, "delete an image", status=204),
    Endpoint(
        "POST", "/api/images/{id}/predict", predict_image, "the masks of a prompt",
        body=PredictBody, reply=PredictReply,
    ),
    Endpoint(
        "POST", "/api/images/{id}/everything", everything_image, "automatic masks",
        body=EverythingBody, reply=MasksReply,
    ),
    Endpoint(
        "PUT", "/api/images/{id}/document", put_document, "store the objects of the page",
        body=Document, status=204,
    ),
    Endpoint(
        "POST", "/api/images/{id}/export", export, "masks in a file",
        body=ImageExportBody, media="application/octet-stream",
    ),
)  # fmt: skip
