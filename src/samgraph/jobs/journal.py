"""The folder of a tracking run, which can be resumed after any kind of stop.

    run.json             what the run is: video, prompts, model, options
    frames.jsonl         one line per frame, appended when the frame's other files are on the disk
    .session.safetensors the tracking state to resume from; deleted when the run is done

The files of the formats are beside them (see `track_output.py`). A frame is done when its line is
whole. Nothing that is done is written again.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from samgraph.errors import OutputError
from samgraph.media.files import unwritable, write_atomically
from samgraph.media.mask.rle import to_json
from samgraph.media.video.source import Damage
from samgraph.predict.video.result import FrameResult
from samgraph.untrusted.text import json_bytes

RUN, JOURNAL, SESSION, LOCK = "run.json", "frames.jsonl", ".session.safetensors", ".lock"
ENDING = "ending"
SYNC_SECONDS, SYNC_FRAMES = 1.0, 100


class Journal:
    """Lines that are appended to a file and never changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.frames: set[int] = set()
        self.concealed: set[int] = set()  # partly guessed by the decoder
        self.resized: set[int] = set()
        end = self._read()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.ftruncate(self._file, end)
            os.lseek(self._file, end, os.SEEK_SET)
        except OSError as error:
            raise unwritable(path, error) from error
        self._end, self._unsynced, self._synced = end, 0, time.monotonic()

    def append(self, record: dict[str, Any]) -> None:
        """Write a frame's line; it is whole, or it is not there.

        Raises:
            OutputError: The disk is full; all lines before are as they were.
        """
        line = json_bytes(record, compact=True) + b"\n"
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise unwritable(self._path, error) from error
        self._end += len(line)
        self._note(record)
        self._unsynced += 1
        if self._unsynced >= SYNC_FRAMES or time.monotonic() - self._synced >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Have the disk hold what was written."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise unwritable(self._path, error) from error
        self._unsynced, self._synced = 0, time.monotonic()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def records(self) -> Iterator[dict[str, Any]]:
        """All lines, in the order of frames."""
        places: dict[int, int] = {}
        with self._path.open("rb") as file:
            at = 0
            for line in file:
                places[int(json.loads(line)["frame"])] = at
                at += len(line)
            for frame in sorted(places):
                file.seek(places[frame])
                record: dict[str, Any] = json.loads(file.readline())
                yield record

    def _read(self) -> int:
        """Note the frames of an earlier run; returns where its last whole line ends."""
        end = 0
        if not self._path.exists():
            return end
        with self._path.open("rb") as file:
            for line in file:
                record = _record_of(line)
                if record is None:
                    break
                self._note(record)
                end += len(line)
        return end

    def _note(self, record: dict[str, Any]) -> None:
        self.frames.add(record["frame"])
        for key, frames in (("concealed", self.concealed), ("resized", self.resized)):
            if record.get(key):
                frames.add(record["frame"])


def _record_of(line: bytes) -> dict[str, Any] | None:
    """What a line says; None for one that was cut short."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    is_whole = isinstance(record, dict) and isinstance(record.get("frame"), int)
    return record if is_whole else None


class RunFolder:
    """The folder of one run, held by one process at a time."""

    def __init__(self, folder: Path, described: dict[str, Any], *, resume: bool) -> None:
        self.path, self.session = folder, folder / SESSION
        self._described = described
        self._is_ours = not folder.exists()
        make_folder(folder)
        earlier = _read_run(folder)
        _check(folder, earlier, described, resume=resume)
        self._is_new = earlier is None
        # What was said at the end of a run that is done.
        self.ending: dict[str, Any] | None = (earlier or {}).get(ENDING)
        self._lock = FileLock(folder / LOCK)
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise OutputError(f"`{folder}` is being written by another process") from error
        except OSError as error:
            raise unwritable(folder, error) from error
        if earlier is None:
            self._write_run({})
        for leftover in folder.glob(".*.part"):
            leftover.unlink(missing_ok=True)
        self.journal = Journal(folder / JOURNAL)

    def finish(self, ending: dict[str, Any]) -> None:
        """Note that the run is done; it then needs nothing to go on."""
        self._write_run({ENDING: ending})
        self.ending = ending
        self.session.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the folder; of a run that did nothing, nothing stays."""
        self.journal.close()
        if self._is_new and not self.journal.frames:
            for name in (RUN, JOURNAL, SESSION):
                (self.path / name).unlink(missing_ok=True)
        self._lock.release()
        (self.path / LOCK).unlink(missing_ok=True)
        if self._is_ours and not any(self.path.iterdir()):
            self.path.rmdir()

    def _write_run(self, more: dict[str, Any]) -> None:
        data = json_bytes({**self._described, **more}, indent=2)
        write_atomically(self.path / RUN, data + b"\n")


def frame_record(result: FrameResult, damage: Damage) -> dict[str, Any]:
    """A frame's line; `damage` is that of the video, as far as it has been read."""
    objects = []
    boxes, areas = result.boxes.tolist(), result.areas.tolist()
    numbers = zip(result.scores.tolist(), result.object_scores.tolist(), boxes, areas, strict=True)
    for obj, rle, is_present, (iou, score, box, area) in zip(
        result.object_results, result.rles, result.present.tolist(), numbers, strict=True
    ):
        objects.append(
            {
                "id": obj.name,
                "present": is_present,
                "prompted": obj.is_prompted,
                "score": round(iou, 6),
                "object_score": round(score, 6),
                "area": area,
                "box": box,
                "segmentation": to_json(rle),
            }
        )
    seconds = None if result.time is None else round(result.time, 6)
    record: dict[str, Any] = {"frame": result.index, "time": seconds, "objects": objects}
    for key, frames in (("concealed", damage.concealed), ("resized", damage.resized)):
        if result.index in frames:
            record[key] = True
    return record


def make_folder(folder: Path) -> Path:
    """The folder, made if it does not exist.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise OutputError(f"`{folder}` is a file", expected="a folder") from error
    except OSError as error:
        raise OutputError(
            f"`{folder}` cannot be made", got=(error.strerror or str(error)).lower()
        ) from error
    return folder


def _read_run(folder: Path) -> dict[str, Any] | None:
    """What the run of a folder was; None for an empty folder."""
    path = folder / RUN
    if not path.exists():
        others = [name for name in os.listdir(folder) if name != LOCK and not _is_part(name)]
        if others:
            raise OutputError(
                f"`{folder}` holds other files",
                got=f"`{sorted(others)[0]}`" + (" and others" if len(others) > 1 else ""),
                hint="choose an empty folder with -o",
            )
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"`{path}` cannot be read", got=str(error)[:100]) from error
    return found if isinstance(found, dict) else {}


def _check(
    folder: Path, earlier: dict[str, Any] | None, described: dict[str, Any], *, resume: bool
) -> None:
    """Refuse a folder that belongs to another run."""
    if earlier is None:
        return
    if not resume:
        raise OutputError(
            f"`{folder}` holds the results of a run",
            hint="go on with it with --resume, or choose another folder with -o",
        )
    wanted = json.loads(json.dumps(described))
    for key in {**wanted, **earlier}.keys() - {ENDING}:
        if wanted.get(key) != earlier.get(key):
            raise OutputError(
                f"`{folder}` holds the results of another run: {key} differs",
                got=str(wanted.get(key))[:100],
                expected=str(earlier.get(key))[:100],
                hint="choose another folder with -o",
            )


def _is_part(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")
