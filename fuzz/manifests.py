"""Targets of batch runs: manifests, and folders of runs that come from elsewhere."""

import importlib.util
import io
import json
import random
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from fuzz.mutators import mutate_bytes, mutate_json, mutate_text
from fuzz.target import BrokenPromiseError, Target
from samgraph.errors import OutputError, PromptError
from samgraph.jobs.batch.folder import JOURNAL, BatchFolder, ShardOptions
from samgraph.jobs.batch.inputs import Input, InputOptions, find_inputs
from samgraph.jobs.batch.plan import Plan
from samgraph.jobs.batch.records import Shard, shard_of
from samgraph.jobs.batch.shards import Destination, find_shard_format
from samgraph.jobs.journal import RUN

ROWS: list[dict[str, Any]] = [
    {"path": "a.png", "box": [1, 2, 30, 40], "label": "cat"},
    {"path": "a.png", "points": [[5, 6], [7, 8]], "negatives": "1 1;2 2"},
    {"path": "b.mp4", "prompts": [{"frame": 3, "object": "cup", "box": "1,2,3,4"}, {"object": 2}]},
    {"file_name": "c/d.png"},
]
CSV = (
    "path,x0,y0,x1,y1,points,negatives,label,frame,object\n"
    'a.png,1,2,30,40,,,cat,,\na.png,,,,,5 6;7 8,1 1,,2,cup\n"b,c.png",,,,,,,,,\n'
)


class ManifestTarget(Target):
    """A manifest as CSV or JSON lines; what is taken must survive the plan unchanged."""

    name, errors, seconds, megabytes = "manifest", (PromptError,), 2.0, 256

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.4:
            text = mutate_text(rng, CSV)
            return b"csv\n" + text.encode("utf-8", "surrogatepass")
        rows = list(ROWS)
        at = rng.randrange(len(rows))
        rows[at] = mutate_json(rng, rows[at])
        text = "".join(json.dumps(row) + "\n" for row in rows)
        text = mutate_text(rng, text) if rng.random() < 0.3 else text
        data = text.encode("utf-8", "surrogatepass")
        return b"jsonl\n" + (mutate_bytes(rng, data) if rng.random() < 0.2 else data)

    def use(self, data: bytes, folder: Path) -> None:
        kind, _, raw = data.partition(b"\n")
        path = folder / f"list.{kind.decode()}"
        path.write_bytes(raw)
        inputs = list(find_inputs([str(path)], InputOptions(remote=True)))
        plan = Plan(folder / "plan", inputs)
        try:
            planned = list(plan)
        finally:
            plan.close()
        if {one.path for one in planned} != {one.path for one in inputs}:
            raise BrokenPromiseError("the plan has other inputs than the manifest")
        for one in planned:
            if not (folder / one.stem).resolve().parent.samefile(folder):
                raise BrokenPromiseError(f"an input's folder leads elsewhere: {one.stem!r}")
            one.rows  # noqa: B018 (it must not raise)

    def good(self) -> list[bytes]:
        lines = "".join(json.dumps(row) + "\n" for row in ROWS)
        return [b"csv\n" + CSV.encode(), b"jsonl\n" + lines.encode()]


class BatchFolderTarget(Target):
    """The folder of a batch run: `run.json`, the journal and the open part."""

    name, errors, seconds, megabytes = "batch", (OutputError,), 2.0, 256
    described: ClassVar[dict[str, Any]] = {"kind": "batch", "task": "segment"}
    result: ClassVar[dict[str, Any]] = {
        "key": "0123456789abcdef", "prompts": "0" * 16, "name": "a.png", "attempts": 1,
        "result": {"height": 4, "width": 4, "annotations": [
            {"segmentation": {"size": [4, 4], "counts": "12="}, "area": 2, "bbox": [0, 0, 1, 2],
             "label": "cat"}]},
    }  # fmt: skip

    def make(self, rng: random.Random) -> bytes:
        failed = {"key": "f" * 16, "name": "b", "reason": "r", "message": "m", "attempts": 2}
        shard = Shard(0, ["e" * 16, "f" * 16], ["0" * 16] * 2, [failed], 1, 3, ["cat"])
        journal: Any = json.loads(shard.line())
        journal = mutate_json(rng, journal) if rng.random() < 0.6 else journal
        lines: list[Any] = [{**self.result, "key": f"{n:016x}"} for n in range(3)]
        lines[1] = mutate_json(rng, lines[1])
        run = mutate_json(rng, self.described) if rng.random() < 0.2 else self.described
        part = "".join(json.dumps(line) + "\n" for line in lines).encode()
        part = mutate_bytes(rng, part) if rng.random() < 0.3 else part
        pieces = [json.dumps(run).encode(), json.dumps(journal).encode() + b"\n", part]
        return b"\xff\n".join(piece.replace(b"\xff\n", b"") for piece in pieces)

    def use(self, data: bytes, folder: Path) -> None:
        run, journal, part = (*data.split(b"\xff\n"), b"", b"")[:3]
        path = folder / "run"
        path.mkdir(exist_ok=True)
        (path / RUN).write_bytes(run)
        (path / JOURNAL).write_bytes(journal)
        number = 1 if shard_of(journal) is not None else 0
        (path / f"part-{number:05d}.jsonl").write_bytes(part)
        shards = ShardOptions(find_shard_format("coco"), Destination(path))
        opened = BatchFolder(path, self.described, shards)
        try:
            opened.is_done(Input("/a.png", "a.png"))
            opened.finish()
            list(opened.failures())
        finally:
            opened.close()
        if list(path.glob("part-*")):
            raise BrokenPromiseError("a part was left behind by a run that ended")

    def good(self) -> list[bytes]:
        line = json.dumps(self.result).encode() + b"\n"
        return [json.dumps(self.described).encode() + b"\xff\n\xff\n" + line]


class ParquetTarget(Target):
    """A manifest as Parquet, mostly with its footer changed, where pyarrow is installed."""

    name, errors, seconds, megabytes = "parquet", (PromptError,), 2.0, 512

    @cached_property
    def seed(self) -> bytes:
        import pyarrow as pa
        from pyarrow import parquet

        buffer = io.BytesIO()
        prompts = [{"frame": 3, "object": "cup", "box": [1.0, 2.0, 3.0, 4.0]}]
        rows = [{"path": "a.mp4", "prompts": prompts, "label": "cat"}, {"path": "b.png"}] * 3
        parquet.write_table(pa.Table.from_pylist(rows), buffer)
        return buffer.getvalue()

    def make(self, rng: random.Random) -> bytes:
        raw = bytearray(self.seed)
        if rng.random() < 0.3:
            return mutate_bytes(rng, bytes(raw))
        for _ in range(rng.choice((1, 1, 2, 4))):
            raw[len(raw) - 8 - rng.randrange(min(900, len(raw) - 8))] = rng.randrange(256)
        return bytes(raw)

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "list.parquet"
        path.write_bytes(data)
        list(find_inputs([str(path)], InputOptions()))

    def good(self) -> list[bytes]:
        return [self.seed]


HAS_PARQUET = importlib.util.find_spec("pyarrow") is not None
TARGETS: tuple[type[Target], ...] = (ManifestTarget, BatchFolderTarget)
TARGETS += (ParquetTarget,) if HAS_PARQUET else ()
