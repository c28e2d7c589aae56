"""The folder of a batch run, which goes on after any kind of stop.

    run.json            what the run is: task, options, and the model once a worker has loaded it
    part-00012.jsonl    a line per input that is done; made into a shard when there are enough
    masks-00012.json    a finished shard (see `shards.py`)
    journal.jsonl       a line per finished shard: which inputs are in it, and which failed
    failures.jsonl      the inputs that failed, with reasons; written when a run ends

An input is done when its line is whole in the part, and on the disk before it is counted. A shard
is written from its part, then noted in the journal, then the part is removed: stopped between any
two of these, the next run does the same again and gets the same files.
"""

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samgraph.errors import OutputError
from samgraph.formats.segment import DEFAULT_LABEL
from samgraph.jobs.append_only import AppendOnlyFile
from samgraph.jobs.batch.inputs import Input
from samgraph.jobs.batch.records import (
    LONGEST_LINE,
    Result,
    Shard,
    result_line,
    result_of,
    shard_of,
)
from samgraph.jobs.batch.scheduler import Verdict
from samgraph.jobs.batch.shards import Destination, ShardFormat, Totals
from samgraph.jobs.journal import RUN, check_same_run, earlier_run, lock_folder
from samgraph.media.files import unwritable, write_atomically
from samgraph.untrusted.files import open_regular
from samgraph.untrusted.text import json_bytes, shown

JOURNAL, FAILURES, PLAN = "journal.jsonl", "failures.jsonl", ".inputs.jsonl"
MODEL = "model"
SYNC_LINES, SYNC_SECONDS = 256, 0.5
SHARD_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """How results are divided into files.

    Args:
        format: That of shards.
        destination: Where shards go.
        inputs: The most inputs per shard.
        bytes: The most bytes of results per shard, so that memory stays bounded.
    """

    format: ShardFormat
    destination: Destination
    inputs: int = 1000
    bytes: int = SHARD_BYTES


class BatchFolder:
    """The folder of one run, held by one process at a time.

    Args:
        path: The folder, made if it is not there.
        described: What distinguishes the run from others.
        shards: How results are divided into files.
        retry_failed: Inputs that failed in an earlier run are not done.

    Raises:
        OutputError: The folder belongs to another run, or cannot be written.
    """

    def __init__(
        self,
        path: Path,
        described: Mapping[str, Any],
        shards: ShardOptions,
        *,
        retry_failed: bool = False,
    ) -> None:
        self.path, self._described, self._shards = path, dict(described), shards
        self.failed: dict[int, tuple[int, str]] = {}  # by key: the shard, and the reason
        self.succeeded = self.damaged = self.recorded = 0
        self._totals, self._number = Totals(), 0
        self._keys, self._prompt_keys = array("Q"), array("Q")
        self._is_ours = not os.path.lexists(path)
        self._lock = lock_folder(path)
        try:
            self._earlier = self._checked(earlier_run(path, own=(PLAN,)))
            for leftover in path.glob(".*.part"):
                with suppress(OSError):
                    leftover.unlink()
            if self._earlier is None:  # first of all files: without it the others are nobody's
                self._write_run(self._described)
            self._journal = AppendOnlyFile(path / JOURNAL, self._take_shard, LONGEST_LINE)
        except BaseException:
            self._let_go()
            raise
        try:
            self._remove_old_parts()
            self._open_part()
        except BaseException:
            self._journal.close()
            self._let_go()
            raise
        self._index(retry_failed)

    @property
    def acknowledged(self) -> int:
        """Inputs of this run that the disk holds."""
        return self.recorded - self._part.unsynced

    def is_done(self, found: Input) -> bool:
        """Whether an earlier run has the input.

        Raises:
            OutputError: It has, with other prompts.
        """
        place = int(np.searchsorted(self._done, np.uint64(int(found.key, 16))))
        if place == len(self._done) or int(self._done[place]) != int(found.key, 16):
            return False
        if int(self._done_prompts[place]) != int(found.prompt_key, 16):
            raise OutputError(
                f"`{self.path}` holds results of `{shown(found.name)}` for other prompts",
                hint="choose another folder with -o",
            )
        return True

    def meet(self, about: Mapping[str, Any]) -> None:
        """Note the model of the run, or compare it with that of the workers before.

        Raises:
            OutputError: It is another one.
        """
        described = {**self._described, MODEL: dict(about)}
        if self._earlier is None:
            self._write_run(described)
            self._earlier = described
        check_same_run(self.path, self._earlier, described, resume=True)

    def record(self, verdicts: list[Verdict[Input]]) -> None:
        """Write results; they are counted in `acknowledged` once the disk holds them.

        Raises:
            OutputError: The disk is full; what was recorded before is as it was.
        """
        for verdict in verdicts:
            line = result_line(verdict)
            self._part.append(line)
            self.recorded += 1
            self._in_part += 1
            self._part_bytes += len(line)
            if self._is_full:
                self._finish_shard()
        if self._part.is_due:
            self._part.sync()

    def finish(self) -> None:
        """Write the last shard, and the list of failures."""
        if self._in_part:
            self._finish_shard()
        data = b"".join(json_bytes(failure, compact=True) + b"\n" for failure in self.failures())
        if data:
            write_atomically(self.path / FAILURES, data)
        else:
            with suppress(OSError):
                (self.path / FAILURES).unlink()

    def failures(self) -> Iterator[dict[str, Any]]:
        """The inputs of finished shards that failed, with reason and message."""
        with open_regular(self.path / JOURNAL) as file:
            while line := file.readline(LONGEST_LINE):
                shard = shard_of(line)
                for failure in () if shard is None else shard.failures:
                    last = self.failed.get(int(failure["key"], 16))
                    if shard is not None and last is not None and last[0] == shard.number:
                        yield {"path": failure["name"], **_without(failure, "key", "name")}

    def close(self) -> None:
        """Let go of the folder; of a run that did nothing, nothing stays."""
        with suppress(OutputError):
            self._part.sync()
        self._part.close()
        self._journal.close()
        if not self._in_part:
            with suppress(OSError):
                self._part_path.unlink()
        if not self._number and not self._in_part:
            for name in (RUN, JOURNAL):
                with suppress(OSError):
                    (self.path / name).unlink()
        self._let_go()

    @property
    def _part_path(self) -> Path:
        return self.path / f"part-{self._number:05d}.jsonl"

    @property
    def _is_full(self) -> bool:
        return self._in_part >= self._shards.inputs or self._part_bytes >= self._shards.bytes

    def _checked(self, earlier: dict[str, Any] | None) -> dict[str, Any] | None:
        """The run of the folder, if it is this one; None where no worker had been ready."""
        if earlier is None or (MODEL not in earlier and earlier.get("kind") == "batch"):
            return None
        described = {**self._described, MODEL: earlier.get(MODEL)}
        check_same_run(self.path, earlier, described, resume=True)
        return earlier

    def _write_run(self, described: dict[str, Any]) -> None:
        write_atomically(self.path / RUN, json_bytes(described, indent=2) + b"\n")

    def _open_part(self) -> None:
        self._in_part = self._part_bytes = 0
        self._part = AppendOnlyFile(
            self._part_path, self._take_result, LONGEST_LINE,
            sync_lines=SYNC_LINES, sync_seconds=SYNC_SECONDS,
        )  # fmt: skip

    def _remove_old_parts(self) -> None:
        """Remove parts whose shards are in the journal."""
        for part in self.path.glob("part-*.jsonl"):
            if part != self._part_path:
                with suppress(OSError):
                    part.unlink()

    def _take_shard(self, line: bytes) -> bool:
        """Note a finished shard of an earlier run."""
        shard = shard_of(line)
        if shard is None or shard.number != self._number:
            return False
        self._keys.extend(int(key, 16) for key in shard.keys)
        self._prompt_keys.extend(int(key, 16) for key in shard.prompt_keys)
        self._note(shard)
        return True

    def _note(self, shard: Shard) -> None:
        """Count the inputs of a finished shard; of several ends of an input, the last counts."""
        self._number += 1
        self._totals.images += shard.images
        self._totals.annotations += shard.annotations
        self._totals.add_categories(shard.categories)
        self.damaged += shard.damaged
        failed = {int(failure["key"], 16): failure["reason"] for failure in shard.failures}
        for key in (int(key, 16) for key in shard.keys):
            self.failed.pop(key, None)
            if key in failed:
                self.failed[key] = (shard.number, failed[key])
            else:
                self.succeeded += 1

    def _take_result(self, line: bytes) -> bool:
        """Note a result in the part of an earlier run."""
        found = result_of(line)
        if found is None:
            return False
        self._in_part += 1
        self._part_bytes += len(line)
        self._keys.append(int(found.key, 16))
        self._prompt_keys.append(int(found.prompt_key, 16))
        if found.failure is not None:
            self.failed[int(found.key, 16)] = (self._number, found.failure[0])
        return True

    def _index(self, retry_failed: bool) -> None:
        """Order the keys of inputs that are done."""
        keys = np.frombuffer(self._keys, np.uint64) if self._keys else np.zeros(0, np.uint64)
        prompts = np.frombuffer(self._prompt_keys, np.uint64) if len(keys) else keys
        if retry_failed and self.failed:
            again = np.isin(keys, np.fromiter(self.failed, np.uint64, len(self.failed)))
            keys, prompts = keys[~again], prompts[~again]
        order = np.argsort(keys, kind="stable")
        self._done, self._done_prompts = keys[order], prompts[order]
        self._keys, self._prompt_keys = array("Q"), array("Q")

    def _finish_shard(self) -> None:
        """Make a shard of the part, note it, and begin another part."""
        self._part.sync()
        last = {result.key: result for result in self._results()}
        results = sorted(last.values(), key=lambda result: (result.name, result.key))
        good = [result for result in results if result.body is not None]
        labels = dict.fromkeys(
            mask.get("label") or DEFAULT_LABEL
            for result in good
            for mask in (result.body or {}).get("annotations", ())
        )
        fresh = [label for label in labels if label not in self._totals.categories]
        if good:
            self._totals.add_categories(fresh)
            form, destination = self._shards.format, self._shards.destination
            destination.write(form.name(self._number), form.encode(good, self._totals))
        masks = sum(len((result.body or {}).get("annotations", ())) for result in good)
        failures = [_failure(result) for result in results if result.failure is not None]
        keys = [result.key for result in results]
        prompt_keys = [result.prompt_key for result in results]
        damaged = sum("damage" in (result.body or {}) for result in good)
        counts = (len(good), masks, fresh, damaged)
        shard = Shard(self._number, keys, prompt_keys, failures, *counts)
        self._journal.append(shard.line())
        self._journal.sync()
        self._part.close()
        finished = self._part_path
        self._note(shard)
        with suppress(OSError):
            finished.unlink()
        self._open_part()

    def _results(self) -> Iterator[Result]:
        try:
            with open_regular(self._part_path) as file:
                while line := file.readline(LONGEST_LINE):
                    found = result_of(line)
                    if found is None:
                        raise OutputError(f"`{self._part_path}` was changed by another process")
                    yield found
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise unwritable(self._part_path, error) from error

    def _let_go(self) -> None:
        """Give back the lock, and the folder if it was made for this and is empty."""
        self._lock.release()
        if self._is_ours:
            with suppress(OSError):
                self.path.rmdir()


def _without(record: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in names}


def _failure(result: Result) -> dict[str, Any]:
    reason, message = result.failure or ("", "")
    return {
        "key": result.key,
        "name": result.name,
        "reason": reason,
        "message": message,
        "attempts": result.attempts,
    }
