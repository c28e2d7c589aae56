"""A video session as one file: a zip with its document, tracking state and masks.

It continues the same video here or on another machine. Nothing in it can run; everything is
checked when it is read.
"""

import io
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import IO

import msgspec

from samgraph.errors import CheckpointError, SamgraphError
from samgraph.media.files import unwritable
from samgraph.media.video.source import FrameSource
from samgraph.serve.mask_file import are_masks
from samgraph.serve.store import DOCUMENT
from samgraph.serve.video_document import LONGEST, VideoDocument, read_document
from samgraph.serve.video_sessions import MASKS, MOST_PENDING, VideoSession

STATE = "state.safetensors"
PARTS = (DOCUMENT, STATE, MASKS)
STORED_STATE = "state-1.safetensors"
AT_ONCE = 1 << 20
ZIP_BEGINNING = b"PK\x03\x04"
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others take memory as the file says


def write_session(session: VideoSession, path: Path) -> None:
    """Write the session as it is now.

    Raises:
        OutputError: It cannot be written.
    """
    masks = path.with_suffix(".masks")
    try:
        with session.lock:
            session.save()
            session.masks.copy_to(masks)
            document, state = session.document, session.folder / str(session.document.state)
            described = msgspec.structs.replace(document, state=STATE, running=[])
            with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
                file.writestr(DOCUMENT, msgspec.json.encode(described))
                file.write(state, STATE, zipfile.ZIP_STORED)
                file.write(masks, MASKS)
    except OSError as error:
        raise unwritable(path.name, error) from error
    finally:
        masks.unlink(missing_ok=True)


def unpack_session(
    path: Path, folder: Path, limit: int, video: FrameSource, max_objects: int
) -> None:
    """Put the parts of a session file into the folder of a new session.

    Args:
        path: A session file, or a `.safetensors` file that `video.save` wrote.
        folder: Where they go.
        limit: The most bytes, unpacked.
        video: The video it must be of.
        max_objects: The most objects.

    Raises:
        CheckpointError: The file is damaged, or holds other things than a session.
    """
    with path.open("rb") as file:
        is_zip = file.read(4) == ZIP_BEGINNING
    if not is_zip:
        shutil.copyfile(path, folder / STORED_STATE)
        VideoDocument(state=STORED_STATE).save(folder)
        return
    try:
        with _ShortReads(path) as short, zipfile.ZipFile(short) as archive:
            _unpack(archive, folder, limit)
    except SamgraphError:
        raise
    except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, EOFError, ValueError) as error:
        raise CheckpointError("the session file is damaged") from error
    document = read_document(folder)
    numbers = {obj.id for obj in document.objects}
    is_small = len(document.objects) <= max_objects and len(document.pending) <= MOST_PENDING
    if not is_small or len(numbers) < len(document.objects):
        raise CheckpointError("the document of the session is damaged")
    document.state, document.running = STORED_STATE, []
    document.save(folder)
    with (folder / MASKS).open("rb") as lines:
        if not are_masks(lines, video.size_hw, video.length, numbers):
            raise CheckpointError("the masks of the session are damaged, or of another video")


class _ShortReads(io.FileIO):
    """A file of which no more is read at once than a part of a zip needs: not its directory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > AT_ONCE:
            raise zipfile.BadZipFile("its directory is too long")
        return super().read(AT_ONCE if size is None or size < 0 else size) or b""


def _unpack(archive: zipfile.ZipFile, folder: Path, limit: int) -> None:
    """Copy the parts, no byte more than allowed."""
    names = sorted(archive.namelist())
    if names != sorted(PARTS):
        raise CheckpointError("the session file is damaged", expected=", ".join(PARTS))
    if any(part.compress_type not in METHODS for part in archive.infolist()):
        raise CheckpointError("the session file is compressed in another way")
    left = limit
    for name in PARTS:
        target = folder / (STORED_STATE if name == STATE else name)
        most = min(left, LONGEST) if name == DOCUMENT else left
        with archive.open(name) as source, target.open("xb") as file:
            while data := source.read(AT_ONCE):
                most, left = most - len(data), left - len(data)
                if most < 0:
                    raise CheckpointError("the session file is too large")
                _write(file, data)


def _write(file: IO[bytes], data: bytes) -> None:
    """Append to a part; a full disk is no fault of the session file."""
    try:
        file.write(data)
        file.flush()
    except OSError as error:
        raise unwritable(Path(file.name).name, error) from error
