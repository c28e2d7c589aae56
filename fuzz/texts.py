"""Targets that read text: annotations, graphs, profiles, run folders and command lines."""

import base64
import io
import json
import os
import random
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import samgraph.ops  # noqa: F401 (fills the table of ops)
from fuzz.mutators import WORDS, mutate_bytes, mutate_json, mutate_text
from fuzz.target import BrokenPromiseError, Target, check_message
from fuzz.weights import SMALL
from samgraph.cli.main import run as run_command
from samgraph.cli.options import ModelChoice
from samgraph.errors import GraphError, ImageError, OptionError, OutputError
from samgraph.formats import (
    SegmentedImage,
    from_sam_dicts,
    read_coco,
    read_cvat,
    read_davis_frame,
    read_label_studio,
    read_labelme,
    read_mots,
    read_yolo,
)
from samgraph.formats.records import read_json
from samgraph.graph.parser import parse_graph
from samgraph.graph.printer import print_graph
from samgraph.jobs.journal import JOURNAL, RUN, RunFolder
from samgraph.models.sam2.config import find_config
from samgraph.models.sam2.graphs import TRACES
from samgraph.runtime.profiles import read_profiles

RING = [[1, 1], [6, 1], [6, 5], [1, 5]]
RLE = {"size": [8, 9], "counts": [10, 3, 5, 3, 51]}
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADklEQVR4nGNkYGBkZGQAAAAfAAXA9LpBAAAAAElFTkSu"
    "QmCC"
)
DOCUMENTS: dict[str, Any] = {
    "coco": {
        "images": [{"id": 1, "file_name": "a.png", "height": 8, "width": 9}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "segmentation": RLE, "score": 0.5},
            {"id": 2, "image_id": 1, "category_id": 1, "segmentation": [[1, 1, 6, 1, 6, 5]],
             "point_coords": [[1, 2]], "track_id": 3},
        ],
    },
    "labelme": {
        "imageHeight": 8, "imageWidth": 9, "imagePath": "a.png",
        "shapes": [
            {"shape_type": "polygon", "label": "a", "points": RING, "group_id": 1},
            {"shape_type": "polygon", "label": "a", "points": RING, "group_id": 1},
            {"shape_type": "mask", "label": "b", "points": [[1, 1], [2, 2]], "mask": PNG},
        ],
    },
    "label-studio": [
        {"data": {"image": "a.png"}, "annotations": [{"result": [
            {"type": "polygonlabels", "original_width": 9, "original_height": 8, "score": 0.5,
             "value": {"points": [[0, 0], [50, 0], [50, 50]], "polygonlabels": ["cat"]}},
            {"type": "brushlabels", "original_width": 9, "original_height": 8,
             "value": {"rle": [0, 0, 1, 32, 57, 139, 111, 223, 0], "brushlabels": ["cat"]}},
        ]}]},
    ],
    "sam": [
        {"segmentation": {"size": [8, 9], "counts": "a026000o0"}, "area": 3, "bbox": [1, 2, 3, 4],
         "predicted_iou": 0.5, "point_coords": [[1, 2]], "stability_score": 0.9,
         "crop_box": [0, 0, 9, 8]},
        {"segmentation": RLE, "area": 3},
    ],
}  # fmt: skip
CVAT = (
    '<annotations><version>1.1</version><image id="0" name="a" width="9" height="8">'
    '<mask label="cat" rle="2, 3, 4" left="1" top="2" width="3" height="3" group_id="4"/>'
    '<polygon label="dog" points="1,1;6,1;6,5"/></image></annotations>'
)
PROFILE = (
    '[profile.careful]\nwithout = ["fuse_linear_activation"]\nalso = ["merge_projections"]\n'
    'stages = "split"\nprecision = "bf16"\n[profile.default]\nwithout = []\n'
)
MOTS = "3 7 1 8 9 a026000o0\n4 2 1 8 9 a026000o0\n"
TEXTS = {"cvat": CVAT, "mots": MOTS}
YOLO = "0 0.1 0.1 0.9 0.1 0.5 0.5\n3 0 0 1 0 1 1 0 1\n"


def read_sam(path: Path) -> Any:
    """Segments of SAM's dicts in a JSON file, each as an image of its own."""
    return [SegmentedImage("a", s.size_hw, (s,)) for s in from_sam_dicts(read_json(path))]


class AnnotationTarget(Target):
    """Annotation files of every format that is read."""

    name, errors, seconds, megabytes = "annotations", (ImageError,), 20.0, 2048
    readers: ClassVar[dict[str, Callable[[Path], Any]]] = {
        "coco": read_coco,
        "labelme": read_labelme,
        "label-studio": read_label_studio,
        "cvat": read_cvat,
        "mots": read_mots,
        "yolo": lambda path: read_yolo(path, (8, 9)),
        "davis": read_davis_frame,
        "sam": read_sam,
    }

    def make(self, rng: random.Random) -> bytes:
        kind = rng.choice(list(self.readers))
        if kind in DOCUMENTS:
            value = mutate_json(rng, DOCUMENTS[kind])
            text = json.dumps(value)
            text = mutate_text(rng, text) if rng.random() < 0.2 else text
        elif kind == "davis":
            return b"davis\n" + mutate_bytes(rng, base64.b64decode(PNG))
        else:
            text = mutate_text(rng, TEXTS.get(kind, YOLO))
        return f"{kind}\n{text}".encode("utf-8", "surrogatepass")

    def use(self, data: bytes, folder: Path) -> None:
        kind, _, raw = data.partition(b"\n")
        path = folder / "annotations"
        path.write_bytes(raw)
        found = self.readers[kind.decode()](path)
        for image in found if isinstance(found, list) else [found]:
            for segment in image.segments:
                if segment.size_hw != image.size_hw:
                    raise BrokenPromiseError("a mask has another size than its image")

    def good(self) -> list[bytes]:
        documents = {kind: json.dumps(value) for kind, value in DOCUMENTS.items()}
        del documents["label-studio"]  # its brush is of another size, so that it is refused
        texts = {**documents, **TEXTS, "yolo": YOLO}
        files = {kind: text.encode() for kind, text in texts.items()}
        files["davis"] = base64.b64decode(PNG)
        return [kind.encode() + b"\n" + raw for kind, raw in files.items()]


class ProfileTarget(Target):
    """A TOML file of profiles."""

    name, errors, seconds, megabytes = "profile", (OptionError,), 1.0, 128

    def make(self, rng: random.Random) -> bytes:
        text = mutate_text(rng, PROFILE).encode("utf-8", "surrogatepass")
        return mutate_bytes(rng, text) if rng.random() < 0.1 else text

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "x.profiles.toml"
        path.write_bytes(data)
        read_profiles(path)

    def good(self) -> list[bytes]:
        return [PROFILE.encode()]


class GraphTarget(Target):
    """The text of a graph; what is taken must print and parse back the same."""

    name, errors, seconds, megabytes = "graph", (GraphError,), 5.0, 256

    @cached_property
    def seeds(self) -> list[str]:
        golden = Path(__file__).resolve().parents[1] / "tests" / "golden" / "passes"
        texts = [path.read_text(encoding="utf-8") for path in sorted(golden.glob("*.txt"))]
        graphs = [part for text in texts for part in text.split("\n\n") if part.startswith("graph")]
        config = find_config(SMALL)
        traced = [print_graph(TRACES[name](config)) for name in ("mask_prompt", "memory_encoder")]
        whole = []
        for text in (*graphs, *traced):
            try:
                parse_graph(text)
            except GraphError:
                continue  # its constants are not in the text
            whole.append(text)
        return whole

    def make(self, rng: random.Random) -> bytes:
        return mutate_text(rng, rng.choice(self.seeds)).encode("utf-8", "surrogatepass")

    def use(self, data: bytes, folder: Path) -> None:
        graph = parse_graph(data.decode("utf-8", "surrogatepass"))
        text = print_graph(graph, data=True)
        if print_graph(parse_graph(text), data=True) != text:
            raise BrokenPromiseError("a graph does not parse back")

    def good(self) -> list[bytes]:
        return [text.encode() for text in self.seeds[:40]]


class RunFolderTarget(Target):
    """The folder of a run that may come from elsewhere: `run.json` and the journal."""

    name, errors, seconds, megabytes = "run", (OutputError,), 1.0, 128
    described: ClassVar[dict[str, Any]] = {
        "video": {"name": "a", "size_hw": [4, 4]},
        "format": "davis",
        "objects": {"1": 1},
    }
    ending: ClassVar[dict[str, Any]] = {"written": 1, "skipped": 0, "attempted": 1, "damage": None}
    line: ClassVar[dict[str, Any]] = {
        "frame": 0, "time": 0.5, "resized": True,
        "objects": [
            {"id": 1, "present": True, "prompted": True, "score": 0.5, "object_score": 1.5,
             "area": 2, "box": [0, 0, 1, 2], "segmentation": {"size": [4, 4], "counts": "12="}},
        ],
    }  # fmt: skip

    def make(self, rng: random.Random) -> bytes:
        run: Any = {**self.described, **({"ending": self.ending} if rng.random() < 0.5 else {})}
        run = mutate_json(rng, run) if rng.random() < 0.5 else run
        lines = [{**self.line, "frame": n} for n in range(4)]
        lines[2] = mutate_json(rng, lines[2])
        journal = "".join(json.dumps(line) + "\n" for line in lines).encode()
        journal = mutate_bytes(rng, journal) if rng.random() < 0.3 else journal
        text = json.dumps(run).encode()
        text = mutate_bytes(rng, text) if rng.random() < 0.2 else text
        return text.replace(b"\xff\n", b"") + b"\xff\n" + journal

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "run"
        path.mkdir(exist_ok=True)
        run, _, journal = data.partition(b"\xff\n")
        (path / RUN).write_bytes(run)
        (path / JOURNAL).write_bytes(journal)
        found = RunFolder(path, self.described, resume=True)
        try:
            frames = [record["frame"] for record in found.journal.records()]
        finally:
            found.close()
        if set(frames) != found.journal.frames or frames != sorted(set(frames)):
            raise BrokenPromiseError("the frames of the journal are not those of its records")

    def good(self) -> list[bytes]:
        run = json.dumps({**self.described, "ending": self.ending}).encode()
        return [run + b"\xff\n" + json.dumps(self.line).encode() + b"\n"]


class CommandTarget(Target):
    """Command lines, up to where the model would be loaded; never exit code 1."""

    name, errors, seconds, megabytes = "command", (), 30.0, 1024
    lines = (
        "segment a.png --point 1,2 -o out.png", "segment a.png b.png --box 1,2,3,4 --format coco",
        "segment - --point 1,1 --negative 2,2 -o - --best --fill-holes 3 --json",
        "everything a.png --points-per-side 4 --iou 0.5 --crop-layers 1 --quiet -o m/ --label x",
        "track frames --point 1,1@0:1 --box 1,2,3,4@1:cup -o out --format jsonl --end 3 --both",
        "track a.mp4 --mask a.png --resume --max-memory-mb 10 -o out --no-overlaps --strict",
        "eval davis data --prompt box --json", "eval images data --limit 3", "models --json",
        "graph mask_prompt --model samgraph-nano --cost", "graph mask_prompt --image-size 64",
        "--version", "--help", "segment --help", "--debug models",
    )  # fmt: skip

    def make(self, rng: random.Random) -> bytes:
        words = rng.choice(self.lines).split()
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(words) + 1)
            match rng.randrange(5):
                case 0:
                    words.insert(at, rng.choice(WORDS))
                case 1 if words:
                    words.pop(min(at, len(words) - 1))
                case 2:
                    words.insert(at, rng.choice(rng.choice(self.lines).split()))
                case 3 if words:
                    index = min(at, len(words) - 1)
                    words[index] = mutate_text(rng, words[index])[:2000]
                case _:
                    rng.shuffle(words)
        # What is given may name a file to write: none outside the folder.
        clean = [word.replace("\0", "").replace("/", "_").replace("..", "_") for word in words]
        return json.dumps([word for word in clean if word != "--debug"]).encode()

    def use(self, data: bytes, folder: Path) -> None:
        streams = [io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(3)]
        before = sys.stdin, sys.stdout, sys.stderr, ModelChoice.load, os.getcwd()
        current = folder / "current"
        current.mkdir(exist_ok=True)
        try:
            os.chdir(current)
            sys.stdin, sys.stdout, sys.stderr = streams
            ModelChoice.load = _no_model  # type: ignore[assignment,method-assign]  # put back
            code = run_command(json.loads(data))
        finally:
            sys.stdin, sys.stdout, sys.stderr = before[:3]
            ModelChoice.load = before[3]  # type: ignore[method-assign]  # as it was
            os.chdir(before[4])
        message = streams[2].detach().getvalue().decode("utf-8")
        if code not in (0, 2, 3):
            raise BrokenPromiseError(f"it ended with code {code}: {message[-300:]}")
        check_message(message)

    def good(self) -> list[bytes]:
        return [json.dumps(line.split()).encode() for line in self.lines if "debug" not in line]


def _no_model(choice: ModelChoice) -> Any:
    raise OptionError("there is no model in the fuzzer")


TARGETS = (AnnotationTarget, GraphTarget, ProfileTarget, RunFolderTarget, CommandTarget)
