"""The target of what clients send to the server to be kept: session files of videos."""

import io
import json
import random
import shutil
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fuzz.mutators import NUMBERS, mutate_bytes, mutate_json
from fuzz.saved import FRAMES, SIZE_HW, small_model
from fuzz.target import BrokenPromiseError, Target
from samgraph.errors import CheckpointError, PromptError
from samgraph.media.mask import rle
from samgraph.models.sam2.model import Sam2Model
from samgraph.predict.video.sessions import save_video
from samgraph.predict.video.video import Video, open_video
from samgraph.serve.gate import Turns
from samgraph.serve.mask_file import MaskFile
from samgraph.serve.session_file import PARTS, unpack_session
from samgraph.serve.store import DOCUMENT
from samgraph.serve.video_document import read_document
from samgraph.serve.video_sessions import MASKS, VideoSession

MOST_OBJECTS = 255


class ServedSessionTarget(Target):
    """A session of a video as one file, up to a session that clients can go on with."""

    name, seconds, megabytes = "served", 3.0, 256
    errors = (CheckpointError, PromptError)
    document: ClassVar[dict[str, Any]] = {
        "version": 1, "next_id": 3, "state": "state.safetensors", "pending": [], "running": [],
        "objects": [{"id": 1, "name": "cup", "color": "#0000ff", "version": 2}, {"id": 2}],
    }  # fmt: skip
    line: ClassVar[dict[str, Any]] = {
        "type": "mask", "frame": 0, "object": 1, "version": 2, "prompted": True, "present": True,
        "score": 0.5, "object_score": 1.0, "area": 4, "box": [1, 1, 3, 3], "counts": "",
    }  # fmt: skip

    @cached_property
    def model(self) -> Sam2Model:
        return small_model()

    @cached_property
    def state(self) -> bytes:
        path = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp")
        file = path / f"samgraph-fuzz-state-{id(self)}"
        try:
            save_video(self.video(), file)
            return file.read_bytes()
        finally:
            file.unlink(missing_ok=True)

    def video(self) -> Video:
        return open_video(self.model, [np.zeros((*SIZE_HW, 3), np.uint8)] * FRAMES)

    def lines(self) -> list[dict[str, Any]]:
        mask = np.zeros(SIZE_HW, np.bool_)
        mask[1:3, 1:3] = True
        line = {**self.line, "counts": rle.encode(mask)["counts"].decode()}
        return [{**line, "frame": n} for n in range(3)] + [{"type": "forget", "object": 2}]

    def make(self, rng: random.Random) -> bytes:
        document = mutate_json(rng, self.document) if rng.random() < 0.4 else self.document
        lines: list[Any] = self.lines()
        if rng.random() < 0.6:
            at = rng.randrange(len(lines))
            lines[at] = mutate_json(rng, lines[at])
        if rng.random() < 0.2:
            lines[0]["frame"] = rng.choice(NUMBERS)
        parts = {
            PARTS[0]: json.dumps(document).encode(),
            PARTS[1]: mutate_bytes(rng, self.state) if rng.random() < 0.2 else self.state,
            PARTS[2]: "".join(json.dumps(line) + "\n" for line in lines).encode(),
        }
        method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, rng.choice((12, 14))))
        raw = packed(parts, method)
        return mutate_bytes(rng, raw) if rng.random() < 0.4 else raw

    def use(self, data: bytes, folder: Path) -> None:
        path, inner = folder / "session", folder / "served"
        path.write_bytes(data)
        shutil.rmtree(inner, ignore_errors=True)
        inner.mkdir()
        video = self.video()
        unpack_session(path, inner, 1 << 20, video.source, MOST_OBJECTS)
        if read_document(inner).pending:
            MaskFile(inner / MASKS, SIZE_HW).close()
            return  # prompts need weights
        session = VideoSession(video, inner, Turns(), max_objects=MOST_OBJECTS)
        session.timeline()
        session.frames(0, FRAMES - 1)
        session.save()
        session.close()
        if {entry.name for entry in inner.iterdir()} - {DOCUMENT, MASKS, session.document.state}:
            raise BrokenPromiseError("it left other files")

    def good(self) -> list[bytes]:
        lines = "".join(json.dumps(line) + "\n" for line in self.lines()).encode()
        parts = dict(
            zip(PARTS, (json.dumps(self.document).encode(), self.state, lines), strict=True)
        )
        return [packed(parts, zipfile.ZIP_STORED), packed(parts, zipfile.ZIP_DEFLATED), self.state]


def packed(parts: dict[str, bytes], method: int) -> bytes:
    """A zip of parts, the same whenever it is made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, data in parts.items():
            file.writestr(zipfile.ZipInfo(name), data, method)
    return buffer.getvalue()


TARGETS: tuple[type[Target], ...] = (ServedSessionTarget,)
