"""The folder of a tracking run, which can be resumed after any kind of stop.

    run.json             what the run is: video, prompts, model, options
    frames.jsonl         one line per frame, appended when the frame's other files are on the disk
    .session.safetensors the tracking state to resume from; deleted when the run is done

The files of the formats are beside them (see `track_output.py`). A frame is done when its line is
whole. Nothing that is done is written again.
"""

import io
import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from samgraph.errors import OutputError
from samgraph.jobs.append_only import AppendOnlyFile
from samgraph.jobs.journal_schema import ENDING, LONGEST_LINE, LONGEST_RUN, frame_of, run_of
from samgraph.jobs.run_lock import RunLock
from samgraph.media.files import make_folder, unwritable, write_atomically
from samgraph.media.mask.rle import to_json
from samgraph.media.video.source import Damage, numbered_name
from samgraph.predict.video.result import FrameResult
from samgraph.untrusted.files import open_regular, read_regular
from samgraph.untrusted.text import json_bytes, shown

RUN, JOURNAL, SESSION, LOCK = "run.json", "frames.jsonl", ".session.safetensors", ".lock"
TRIES = 10


class Journal:
    """Lines that are appended to a file and never changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.frames: set[int] = set()
        self.concealed: set[int] = set()  # partly guessed by the decoder
        self.resized: set[int] = set()
        self._file = AppendOnlyFile(path, self._take, LONGEST_LINE)

    def append(self, record: dict[str, Any]) -> None:
        """Write a frame's line; it is whole, or it is not there.

        Raises:
            OutputError: The disk is full; all lines before are as they were.
        """
        self._file.append(json_bytes(record, compact=True) + b"\n")
        self._note(record)

    def sync(self) -> None:
        """Flush what was written to disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def records(self) -> Iterator[dict[str, Any]]:
        """All lines, in the order of frames."""
        with open_regular(self._path) as file:
            yield from ordered_records(file)

    def _take(self, line: bytes) -> bool:
        """Note a frame of an earlier run; False where its line is not whole."""
        record = frame_of(line)
        if record is not None:
            self._note(record)
        return record is not None

    def _note(self, record: dict[str, Any]) -> None:
        self.frames.add(record["frame"])
        for key, frames in (("concealed", self.concealed), ("resized", self.resized)):
            if record.get(key):
                frames.add(record["frame"])


def ordered_records(file: io.BufferedReader) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal, in the order of frames; of a frame that is there twice, one."""
    offsets: dict[int, int] = {}
    for at, record in _whole_lines(file):
        offsets[record["frame"]] = at
    for frame in sorted(offsets):
        file.seek(offsets[frame])
        again = frame_of(file.readline(LONGEST_LINE))
        if again is not None:
            yield again


def read_run(folder: Path) -> dict[str, Any]:
    """The content of `run.json` in a folder; nothing where it is missing or damaged."""
    try:
        return run_of(read_regular(folder / RUN, LONGEST_RUN) or b"")
    except (OSError, ValueError):
        return {}


def _whole_lines(file: io.BufferedReader) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every line up to the first that is not whole: where it begins, and its content."""
    file.seek(0)
    at = 0
    while line := file.readline(LONGEST_LINE):
        record = frame_of(line)
        if record is None:
            return
        yield at, record
        at += len(line)


class RunFolder:
    """The folder of one run, held by one process at a time.

    `replace` removes an earlier run that is not continued.
    """

    def __init__(
        self,
        folder: Path,
        described: dict[str, Any],
        *,
        resume: bool,
        replace: Callable[[Path, dict[str, Any]], None] | None = None,
    ) -> None:
        self.path, self.session = folder, folder / SESSION
        self._described = described
        self._is_ours = not os.path.lexists(folder)
        self._lock = lock_folder(folder)
        try:
            earlier = earlier_run(folder)
            if earlier is not None and replace is not None:
                replace(folder, earlier)
                earlier = None
            check_same_run(folder, earlier, described, resume=resume)
            self._is_new = earlier is None
            # The summary of a finished run.
            self.ending: dict[str, Any] | None = (earlier or {}).get(ENDING)
            if earlier is None:
                self._write_run({})
            for leftover in folder.glob(".*.part"):
                with suppress(OSError):
                    leftover.unlink()
            self.journal = Journal(folder / JOURNAL)
        except BaseException:
            self._let_go()
            raise

    def finish(self, ending: dict[str, Any]) -> None:
        """Note that the run is done, and delete what resuming needs."""
        self._write_run({ENDING: ending})
        self.ending = ending
        with suppress(OSError):
            self.session.unlink()

    def close(self) -> None:
        """Release the folder; a run that wrote nothing leaves nothing."""
        self.journal.close()
        if self._is_new and not self.journal.frames:
            for name in (RUN, JOURNAL, SESSION):
                with suppress(OSError):
                    (self.path / name).unlink()
        self._let_go()

    def _let_go(self) -> None:
        """Release the lock, and remove the folder if it was made for this and is empty."""
        self._lock.release()
        if self._is_ours:
            with suppress(OSError):  # it is not empty, or another process is in it already
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
    if result.name != numbered_name(result.index):
        record["name"] = result.name
    for key, frames in (("concealed", damage.concealed), ("resized", damage.resized)):
        if result.index in frames:
            record[key] = True
    return record


def lock_folder(folder: Path) -> RunLock:
    """The lock of a folder, which is made if it is not there."""
    lock = RunLock(folder / LOCK)
    for _ in range(TRIES):
        make_folder(folder)
        try:
            if lock.acquire():
                return lock
        except FileNotFoundError:
            continue  # the run before has just ended, and removed its empty folder
        except OSError as error:
            raise unwritable(folder, error) from error
        break
    raise OutputError(f"`{folder}` is being written by another process")


def earlier_run(folder: Path, own: Collection[str] = ()) -> dict[str, Any] | None:
    """What the run of a folder was; None for a folder that is empty, but for files named `own`.

    Raises:
        OutputError: It cannot be read, or the folder holds other files.
    """
    path = folder / RUN
    try:
        data = read_regular(path, LONGEST_RUN)
        return run_of(data or b"")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise OutputError(f"`{path}` cannot be read", got=shown(str(error))) from error
    known = {LOCK, *own}
    others = [name for name in os.listdir(folder) if name not in known and not _is_part(name)]
    if others:
        raise OutputError(
            f"`{folder}` holds other files",
            got=f"`{sorted(others)[0]}`" + (" and others" if len(others) > 1 else ""),
            hint="choose an empty folder with -o",
        )
    return None


def check_same_run(
    folder: Path, earlier: dict[str, Any] | None, described: dict[str, Any], *, resume: bool
) -> None:
    """Refuse a folder that belongs to another run."""
    if earlier is None:
        return
    if not resume:
        raise OutputError(
            f"`{folder}` holds the results of a run",
            hint="continue it with --resume, or replace it with --overwrite",
        )
    wanted = json.loads(json.dumps(described))
    for key in {**wanted, **earlier}:  # in order: the task before its options
        if key != ENDING and wanted.get(key) != earlier.get(key):
            raise OutputError(
                f"`{folder}` holds the results of another run: not the same {key}",
                got=_unlike(wanted.get(key), earlier.get(key)),
                expected=_unlike(earlier.get(key), wanted.get(key)),
                hint="choose another folder with -o",
            )


def _unlike(value: Any, other: Any) -> str:
    """A value as text; of a mapping, what another has otherwise."""
    if isinstance(value, dict) and isinstance(other, dict):
        some = {key: item for key, item in value.items() if other.get(key) != item}
        value = ", ".join(f"{k} {'not given' if v is None else v}" for k, v in some.items())
    return str(value)[:100]


def _is_part(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")
