"""A video session as one file: a zip with its document, tracking state and masks.

It continues the same video here or on another machine. Nothing in it can run; everything is
checked when it is read.
"""

import shutil
import zipfile
from pathlib import Path

import msgspec

from samgraph.errors import CheckpointError
from samgraph.media.files import unwritable
from samgraph.serve.mask_file import check_lines
from samgraph.serve.store import DOCUMENT
from samgraph.serve.video_document import LONGEST, VideoDocument, read_document
from samgraph.serve.video_sessions import MASKS, VideoSession

STATE = "state.safetensors"
PARTS = (DOCUMENT, STATE, MASKS)
STORED_STATE = "state-1.safetensors"
AT_ONCE = 1 << 20
ZIP_BEGINNING = b"PK\x03\x04"


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


def unpack_session(path: Path, folder: Path, limit: int, size_hw: tuple[int, int]) -> None:
    """Put the parts of a session file into the folder of a new session.

    Args:
        path: A session file, or a `.safetensors` file that `video.save` wrote.
        folder: Where they go.
        limit: The most bytes, unpacked.
        size_hw: Of the frames of the video.

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
        with zipfile.ZipFile(path) as archive:
            _unpack(archive, folder, limit)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError("the session file is damaged") from error
    except OSError as error:
        raise unwritable(folder.name, error) from error
    document = read_document(folder)
    document.state, document.running = STORED_STATE, []
    document.save(folder)
    with (folder / MASKS).open("rb") as rows:
        if not check_lines(rows, size_hw):
            raise CheckpointError("the masks of the session are damaged, or of another video")


def _unpack(archive: zipfile.ZipFile, folder: Path, limit: int) -> None:
    """Copy the parts, no byte more than allowed."""
    names = sorted(archive.namelist())
    if names != sorted(PARTS):
        raise CheckpointError("the session file is damaged", expected=", ".join(PARTS))
    left = limit
    for name in PARTS:
        target = folder / (STORED_STATE if name == STATE else name)
        most = min(left, LONGEST) if name == DOCUMENT else left
        with archive.open(name) as source, target.open("xb") as file:
            while data := source.read(AT_ONCE):
                most, left = most - len(data), left - len(data)
                if most < 0:
                    raise CheckpointError("the session file is too large")
                file.write(data)
