"""Targets of files that name images and masks: prompt files, and what `convert` reads."""

import json
import random
from pathlib import Path
from typing import Any, ClassVar

from fuzz.mutators import joined, mutate_bytes, mutate_json, mutate_text, separated
from fuzz.target import BrokenPromiseError, Target
from fuzz.texts import DOCUMENTS, MOTS, RunFolderTarget
from samgraph.errors import ImageError, OutputError, PromptError
from samgraph.formats.table import FORMATS
from samgraph.jobs.convert import ConvertJob, run_convert
from samgraph.jobs.journal import JOURNAL, RUN
from samgraph.jobs.prompt_files import read_prompt_file

CSV = "path,x0,y0,x1,y1,points,negatives,label\na.png,1,2,9,7,,,cat\nb/a.png,,,,,1 1;2 2,3 3,\n"
BOXES = "path,box,label\na.png,1 2 9 7,cat\n"
YOLO = "0 0.5 0.5 0.25 0.25\n1 0.2 0.2 0.1 0.1 0.9\n"
COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b/a.png"}],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [
        {"image_id": 1, "category_id": 1, "bbox": [1, 2, 5, 5]},
        {"image_id": 2, "bbox": [1, 2, 5.5, 5]},
    ],
}


class PromptFileTarget(Target):
    """Prompts for many images: CSV, COCO boxes, a folder of YOLO boxes."""

    name, errors, seconds, megabytes = "prompts", (PromptError, ImageError), 2.0, 256
    files: ClassVar[dict[str, tuple[str, ...]]] = {
        "csv": (CSV, BOXES), "json": (json.dumps(COCO),), "txt": (YOLO,)
    }  # fmt: skip

    def make(self, rng: random.Random) -> bytes:
        kind = rng.choice(list(self.files))
        text = rng.choice(self.files[kind])
        if kind == "json":
            text = json.dumps(mutate_json(rng, COCO))
        if kind != "json" or rng.random() < 0.2:
            text = mutate_text(rng, text)
        data = text.encode("utf-8", "surrogatepass")
        return f"{kind}\n".encode() + (mutate_bytes(rng, data) if rng.random() < 0.1 else data)

    def use(self, data: bytes, folder: Path) -> None:
        kind, _, raw = data.partition(b"\n")
        source = folder / "boxes"
        source.mkdir(exist_ok=True)
        for old in source.iterdir():
            old.unlink()
        path = source / f"a.{kind.decode()}"
        path.write_bytes(raw)
        table = read_prompt_file(str(source if kind == b"txt" else path))
        for row in table.rows:
            row.prompt((40, 50))
        if len(table.of("b/a.png")) > len(table.rows):
            raise BrokenPromiseError("an image has more prompts than there are")

    def good(self) -> list[bytes]:
        return [f"{kind}\n{text}".encode() for kind, texts in self.files.items() for text in texts]


class ConvertTarget(Target):
    """Masks of a run or of an annotation file, converted; all files stay in the output folder."""

    name, errors, seconds, megabytes = "convert", (ImageError, OutputError), 10.0, 1024
    formats = tuple(
        name for name, kind in FORMATS.items() if kind.encoder and not kind.needs_pixels
    )
    run: ClassVar[dict[str, Any]] = {"objects": {"1": 3}, "labels": {"1": "cat"}}

    def frames(self) -> list[dict[str, Any]]:
        (shown,) = RunFolderTarget.line["objects"]
        objects = [{**shown, "segmentation": {"size": [4, 4], "counts": "12="}}]
        return [{"frame": n, "time": 0.5, "objects": objects, "name": f"{n}.png"} for n in range(3)]

    def make(self, rng: random.Random) -> bytes:
        to = rng.choice(self.formats).encode()
        if rng.random() < 0.5:
            kind = rng.choice(("coco", "labelme"))
            text = json.dumps(mutate_json(rng, DOCUMENTS[kind]))
            return joined([to, b"json", text.encode()])
        if rng.random() < 0.1:
            return joined([to, b"txt", mutate_text(rng, MOTS).encode("utf-8", "surrogatepass")])
        frames: list[Any] = self.frames()
        frames[1] = mutate_json(rng, frames[1])
        run = mutate_json(rng, self.run) if rng.random() < 0.5 else self.run
        lines = "".join(json.dumps(frame) + "\n" for frame in frames)
        return joined([to, b"run", lines.encode(), json.dumps(run).encode()])

    def use(self, data: bytes, folder: Path) -> None:
        to, kind, raw, *rest = separated(data)
        source, out = folder / "source", folder / "converted"
        source.mkdir(exist_ok=True)
        path = source / f"masks.{kind.decode()}"
        if kind == b"run":
            path = source
            (source / JOURNAL).write_bytes(raw)
            (source / RUN).write_bytes(rest[0])
        else:
            path.write_bytes(raw)
        before = {entry.name for entry in (*folder.iterdir(), *source.iterdir())}
        try:
            written = run_convert(ConvertJob(str(path), str(out), format=to.decode()))
            strange = [file for file in written if not file.resolve().is_relative_to(out)]
        finally:
            after = {entry.name for entry in (*folder.iterdir(), *source.iterdir())} - {"converted"}
        if strange or after - before:
            raise BrokenPromiseError(f"it wrote elsewhere: {strange or after - before}"[:200])

    def good(self) -> list[bytes]:
        lines = "".join(json.dumps(frame) + "\n" for frame in self.frames()).encode()
        run = json.dumps(self.run).encode()
        return [joined([name.encode(), b"run", lines, run]) for name in self.formats]


TARGETS: tuple[type[Target], ...] = (PromptFileTarget, ConvertTarget)
