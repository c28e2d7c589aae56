"""Files from clients: streamed to disk, limits checked while the bytes arrive.

A file comes as the body itself, its name percent-encoded in `X-Filename`, or as a field of a form.
The name is only shown: no file on disk has it. Paths and addresses are not taken.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar
from urllib.parse import unquote

import msgspec
from anyio import to_thread
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from samgraph.media.files import unwritable
from samgraph.serve.replies import RequestError
from samgraph.untrusted.text import shown

LONGEST_NAME = 120
FORM = "multipart/form-data"
MOST_FILES = 2

Body = TypeVar("Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that arrived: what the client calls it, where it is, and its size in bytes."""

    name: str
    path: Path
    size: int


def safe_name(name: str | None, default: str) -> str:
    """A name to show: the last part of a path, without control characters, not too long."""
    text = PurePosixPath((name or "").replace("\\", "/").replace("\0", "")).name
    text = shown(text.encode("utf-8", "replace").decode(), LONGEST_NAME)
    text = text.strip()
    return default if text in ("", ".", "..") else text


async def body_chunks(request: Request, limit: int, seconds: float) -> AsyncGenerator[bytes, None]:
    """The body as it arrives.

    Raises:
        RequestError: It is longer than `limit` bytes (413), or the client was silent for too long
        (408).
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_long(limit)
    received = 0
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(seconds):
                chunk = await anext(stream, None)
        except TimeoutError as error:
            raise RequestError(408, "the body did not arrive in time") from error
        except ClientDisconnect as error:
            raise RequestError(400, "the client left before the body ended") from error
        if chunk is None:
            return
        received += len(chunk)
        if received > limit:
            raise _too_long(limit)
        yield chunk


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """A short body in memory."""
    parts = [chunk async for chunk in body_chunks(request, limit, seconds)]
    return b"".join(parts)


async def read_json(request: Request, kind: type[Body], limit: int, seconds: float) -> Body:
    """A JSON body as a struct; an empty body is an empty object.

    Raises:
        RequestError: It is not JSON, or not what the struct says.
    """
    data = await read_body(request, limit, seconds) or b"{}"
    return decode_json(data, kind)


def decode_json(data: bytes, kind: type[Body]) -> Body:
    """JSON as a struct.

    Raises:
        RequestError: It is not JSON (400), or not what the struct says (422).
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise RequestError(422, shown(str(error)), code="bad_input") from error
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise RequestError(400, "the body is not JSON", hint=shown(str(error))) from error


async def receive(
    request: Request, folder: Path, limit: int, seconds: float, default: str
) -> dict[str, Upload]:
    """The files of a request, in `folder`, by the name of their field; a bare body is `file`.

    Raises:
        RequestError: There is no file, or too many bytes.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == FORM:
        return await _receive_form(request, folder, limit, seconds, default)
    name = safe_name(unquote(request.headers.get("x-filename", "")), default)
    path = folder / "file"
    size = 0
    try:
        with path.open("xb") as file:
            async for chunk in body_chunks(request, limit, seconds):
                file.write(chunk)
                size += len(chunk)
            await to_thread.run_sync(_sync, file)
    except OSError as error:
        raise unwritable(path.name, error) from error
    if not size:
        raise RequestError(400, "there is no file in the request", hint="send its bytes as body")
    return {"file": Upload(name, path, size)}


async def _receive_form(
    request: Request, folder: Path, limit: int, seconds: float, default: str
) -> dict[str, Upload]:
    """The files of a form; each is spooled to disk while it arrives."""
    chunks = body_chunks(request, limit, seconds)
    parser = MultiPartParser(request.headers, chunks, max_files=MOST_FILES, max_fields=MOST_FILES)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RequestError(400, f"the form is damaged: {shown(error.message)}") from error
    except OSError as error:
        raise unwritable("file", error) from error
    found: dict[str, Upload] = {}
    async with _closing(form):
        for field, value in form.multi_items():
            if field not in ("file", "session") or not isinstance(value, UploadFile):
                raise RequestError(400, f"unknown field `{shown(field, 40)}`", hint="`file`")
            path = folder / field
            size = await to_thread.run_sync(_copy, value.file, path)
            found[field] = Upload(safe_name(value.filename, default), path, size)
    if "file" not in found or not found["file"].size:
        raise RequestError(400, "there is no file in the form", hint="its field is `file`")
    return found


@asynccontextmanager
async def _closing(form: FormData) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await form.close()


def _copy(source: IO[bytes], path: Path) -> int:
    try:
        with path.open("xb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            _sync(target)
            return target.tell()
    except OSError as error:
        raise unwritable(path.name, error) from error


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _too_long(limit: int) -> RequestError:
    return RequestError(
        413,
        f"the body is longer than {limit / (1 << 20):g} MB",
        hint="the server was started with this limit",
    )
