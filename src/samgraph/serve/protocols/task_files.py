"""The images and videos that Label Studio's tasks point at."""

import io
import tempfile
from pathlib import Path

from anyio import to_thread
from starlette.requests import Request

from samgraph.serve.protocols.backend import Backend
from samgraph.serve.protocols.pictures import decode_base64
from samgraph.serve.protocols.remote import AllowedHosts

Folder = tempfile.TemporaryDirectory[str]


class TaskFiles:
    """Files from data URIs, or from hosts that the operator has allowed."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._hostname: str | None = None

    def set_up(self, hostname: str | None, token: str | None) -> None:
        """The address of Label Studio, the base of paths, and its token."""
        self._hostname = hostname or self._hostname
        if hostname and token:
            self._backend.hosts.remember_token(hostname, token)

    async def read(self, request: Request, source: str) -> bytes:
        """The bytes of an image.

        Raises:
            RequestError: Its host was not allowed, or it cannot be had.
        """
        if source[:5].lower() == "data:":
            return decode_base64(source)
        hosts, limit = self._backend.hosts, self._backend.options.max_tool_body_bytes
        address = hosts.resolve(source, self._hostname)
        buffer, service = io.BytesIO(), self._backend.service
        await service.work(request, hosts.fetch, address, buffer, limit, gate=service.media_gate)
        return buffer.getvalue()

    async def download(self, request: Request, source: str) -> tuple[Folder, Path]:
        """A video in a temporary folder, which the caller cleans up.

        Raises:
            RequestError: As `read`.
        """
        is_inside = source[:5].lower() == "data:"
        hosts, service = self._backend.hosts, self._backend.service
        address = "" if is_inside else hosts.resolve(source, self._hostname)
        folder = Folder(prefix="samgraph-")
        path = Path(folder.name) / "video"
        try:
            if is_inside:
                data = decode_base64(source, "the video")
                await to_thread.run_sync(path.write_bytes, data)
            else:
                limit = self._backend.options.max_upload_bytes
                gate = service.media_gate
                await service.work(request, _fetch, hosts, address, path, limit, gate=gate)
        except BaseException:
            folder.cleanup()
            raise
        return folder, path


def _fetch(hosts: AllowedHosts, address: str, path: Path, limit: int) -> int:
    with path.open("xb") as file:
        return hosts.fetch(address, file, limit)
