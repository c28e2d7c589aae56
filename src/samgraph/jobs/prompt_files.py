"""Prompts for many images from a file: CSV, COCO boxes, or a folder of YOLO boxes.

    path,x0,y0,x1,y1,label          path,points,negatives,label
    cat.jpg,75,275,1725,850,cat     cat.jpg,500 375;520 400,20 30,cat

A row is one object. A CSV file has a header; a box is four columns (also x1,y1,x2,y2, or xmin,ymin,
xmax,ymax, or left,top,right,bottom), or one column `box` with four numbers; `points` and
`negatives` are pairs of numbers; a label may be called class. A detector's score is ignored.
Coordinates are pixels of the upright image.
"""

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from samgraph.errors import PromptError
from samgraph.formats.records import as_number, read_json, read_text, take
from samgraph.formats.yolo import CLASS_FILE
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.image.result import Result
from samgraph.predict.prompts import Prompt, assemble, read_prompts
from samgraph.untrusted.text import shown

Numbers = tuple[float, ...]
PATHS = ("path", "image", "file", "filename", "file_name")
CORNERS = ("x0", "y0", "x1", "y1")
COLUMNS = {*PATHS, *CORNERS, "box", "points", "negatives", "label"}
# What detectors and data sets call the corners and the label; a score says nothing here.
_CORNERS_THERE = (
    ("x1", "y1", "x2", "y2"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("x_min", "y_min", "x_max", "y_max"),
    ("left", "top", "right", "bottom"),
)
_LABEL_THERE = ("class", "class_name", "category", "name")
_IGNORED = ("score", "confidence", "conf")
_BETWEEN = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One object of an image: a box, points, or both; `where` is the row, for messages."""

    path: PurePath
    where: str
    box: Numbers | None = None
    points: tuple[Numbers, ...] = ()
    negatives: tuple[Numbers, ...] = ()
    label: str | None = None
    is_relative: bool = False  # whether the box is center and size, in 0..1 of the image, as YOLO's
    frame: int = 0  # of a video
    object_id: int | str | None = None  # of a tracked object

    def is_of(self, image: PurePath) -> bool:
        """Whether it is for an image: the shorter path is the end of the longer."""
        if self.is_relative:  # a label file is named after its image
            return self.path.name == image.stem
        count = min(len(self.path.parts), len(image.parts))
        return count > 0 and self.path.parts[-count:] == image.parts[-count:]

    @property
    def is_ambiguous(self) -> bool:
        """Whether it is a single click, for which the best of three masks is taken."""
        return self.box is None and len(self.points) + len(self.negatives) == 1

    def prompt(self, size_hw: tuple[int, int]) -> Prompt:
        """The prompt on an image of this size.

        Raises:
            PromptError: It does not make sense there.
        """
        box, clicks = self.box, [*self.points, *self.negatives]
        if box is not None and self.is_relative:
            x, y, width, height = box
            sides = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            far = (size_hw[1], size_hw[0]) * 2
            box = tuple(
                min(max(side, 0.0), 1.0) * end for side, end in zip(sides, far, strict=True)
            )
        labels = [1] * len(self.points) + [0] * len(self.negatives)
        given = {"points": clicks, "labels": labels} if clicks else {}
        try:
            (prompt,) = read_prompts(size_hw, 0, box=box, **given)
        except PromptError as error:
            raise PromptError(
                f"{self.where}: {error.what}", got=error.got, expected=error.expected
            ) from error
        return prompt


class PromptTable:
    """The rows of a prompt file, by image."""

    def __init__(self, rows: list[PromptRow], name: str) -> None:
        if not rows:
            raise PromptError(f"`{name}` has no prompt")
        self.rows, self.name = rows, name
        self._by_name: dict[str, list[PromptRow]] = {}  # the stem, for YOLO's
        for row in rows:
            self._by_name.setdefault(row.path.name, []).append(row)

    def of(self, path: str) -> list[PromptRow]:
        """The rows of an image: of two paths, the shorter must be the end of the longer."""
        image = PurePath(path)
        names = dict.fromkeys((image.name, image.stem))
        rows = [row for name in names for row in self._by_name.get(name, ())]
        return [row for row in rows if row.is_of(image)]

    def unused(self, paths: Iterable[str]) -> list[PromptRow]:
        """The rows of no image among these."""
        used = {id(row) for path in paths for row in self.of(path)}
        return [row for row in self.rows if id(row) not in used]


def read_prompt_file(path: str) -> PromptTable:
    """The prompts of a CSV file, a COCO file (`bbox`), or a folder of YOLO label files.

    Raises:
        PromptError: A row is not a prompt, or there is none.
        ImageError: The file is missing or damaged.
    """
    source = Path(path)
    if source.is_dir():
        return PromptTable(list(_yolo_rows(source)), path)
    if source.suffix.lower() == ".json":
        return PromptTable(list(_coco_rows(path)), path)
    return PromptTable(list(_csv_rows(path)), path)


def predict_rows(image: EncodedImage, rows: list[PromptRow], *, all_masks: bool) -> Result:
    """The masks of an image's rows, in their order, each with its label.

    A single click has the best of three masks, other prompts have one; with `all_masks`, three.
    """
    config, size_hw = image.core.config, image.size_hw
    prompts = [row.prompt(size_hw) for row in rows]
    results: dict[int, Result] = {}
    for multimask in (True, False):
        some = [i for i, row in enumerate(rows) if (row.is_ambiguous or all_masks) == multimask]
        if not some:
            continue
        batch = assemble([prompts[i] for i in some], size_hw, config.image_size, config.mask_size)
        found = Result.of(image.decode(batch, multimask=multimask), image.picture)
        for number, index in enumerate(some):
            results[index] = found.of_prompt(number).with_labels(rows[index].label)
    return Result.joined([results[index] for index in range(len(rows))])


def column_names(names: Sequence[str]) -> list[str]:
    """The names of columns as they are called here; empty where a column is ignored."""
    found = ["" if name in _IGNORED else name for name in names]
    corners = next((c for c in _CORNERS_THERE if set(c) <= set(names)), None)
    if corners is not None and "x0" not in names:
        found = [CORNERS[corners.index(n)] if n in corners else n for n in found]
    label = next((name for name in _LABEL_THERE if name in names), None)
    if label is not None and "label" not in names:
        found[found.index(label)] = "label"
    return found


def _csv_rows(path: str) -> Iterator[PromptRow]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), skipinitialspace=True)
    try:
        header = [(name or "").strip().lower() for name in reader.fieldnames or ()]
        names = column_names(header)
        _check_columns(names, path)
        for fields in reader:
            values = dict(zip(names, map(_text, fields.values()), strict=False))
            if any(values.values()):
                yield _csv_row(values, f"line {reader.line_num} of `{path}`")
    except csv.Error as error:
        raise PromptError(f"`{path}` is not CSV", got=str(error)) from error


def _check_columns(names: list[str], path: str) -> None:
    has_prompt = {"box", "points"} & set(names) or set(CORNERS) <= set(names)
    if not set(PATHS) & set(names) or not has_prompt:
        raise PromptError(
            f"`{path}` has no header that says what its columns are",
            got=", ".join(names)[:100],
            expected="path, then box or x0,y0,x1,y1 (or xmin,ymin,xmax,ymax) or points, and label",
        )
    check_columns(names, f"`{path}`", COLUMNS)


def check_columns(names: Sequence[str], where: str, known: Collection[str]) -> None:
    """Refuse columns that are unknown, or there twice.

    Raises:
        PromptError: One is.
    """
    for index, name in enumerate(names):
        if name and name not in known:
            expected = ", ".join(sorted(known))
            raise PromptError(f"{where} has a column `{shown(name, 60)}`", expected=expected)
        if name and name in names[:index]:
            raise PromptError(f"{where} has two columns `{shown(name, 60)}`")


def _csv_row(values: Mapping[str, str], where: str) -> PromptRow:
    path = next((values[name] for name in PATHS if values.get(name)), "")
    if not path:
        raise PromptError(f"{where} does not say which image it is for")
    corners = [values.get(name, "") for name in CORNERS]
    text = values.get("box") or (",".join(corners) if all(corners) else "")
    box = numbers_in(text, where)
    points, negatives = (pairs_in(values.get(name, ""), where) for name in ("points", "negatives"))
    if len(box) not in (0, 4):
        raise PromptError(f"{where}: a box is four numbers", got=text)
    if not box and not points and not negatives:
        raise PromptError(f"{where} has no box and no point")
    label = values.get("label") or None
    return PromptRow(_path(path), where, box or None, points, negatives, label)


def pairs_in(text: str, where: str) -> tuple[Numbers, ...]:
    """Pairs of numbers in a text, such as `500 375;520 400`.

    Raises:
        PromptError: There is an odd number of them, or something else.
    """
    numbers = numbers_in(text, where)
    if len(numbers) % 2:
        raise PromptError(f"{where}: points are pairs of x and y", got=text)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def numbers_in(text: str, where: str) -> Numbers:
    """The numbers in a text, separated by spaces, commas or semicolons.

    Raises:
        PromptError: There is something else in it.
    """
    words = [word for word in _BETWEEN.split(text.strip("[]() ")) if word]
    try:
        return tuple(float(word.strip("[]()")) for word in words)
    except ValueError as error:
        raise PromptError(f"{where} has something that is no number", got=text[:80]) from error


def _coco_rows(path: str) -> Iterator[PromptRow]:
    document, where = read_json(path), f"`{path}`"
    images = {
        take(image, "id", int, where): take(image, "file_name", str, where)
        for image in take(document, "images", list, where)
    }
    names = {
        take(category, "id", int, where): take(category, "name", str, where)
        for category in _categories(document, where)
    }
    for number, annotation in enumerate(take(document, "annotations", list, where), start=1):
        at = f"annotation {number} of {where}"
        numbers = [as_number(side) for side in take(annotation, "bbox", list, at)]
        image = images.get(take(annotation, "image_id", int, at))
        if image is None or len(numbers) != 4 or None in numbers:
            raise PromptError(f"{at} has no image or no box")
        x, y, width, height = (side or 0.0 for side in numbers)
        kind = annotation.get("category_id")
        label = names.get(kind) if isinstance(kind, int) else None
        yield PromptRow(_path(image), at, (x, y, x + width, y + height), label=label)


def _categories(document: Mapping[str, Any], where: str) -> list[Any]:
    """The categories of a COCO file, which it need not have."""
    is_there = document.get("categories") is not None
    return take(document, "categories", list, where) if is_there else []


def _yolo_rows(folder: Path) -> Iterator[PromptRow]:
    listed = folder / CLASS_FILE
    classes = read_text(listed).splitlines() if listed.is_file() else []
    for file in sorted(folder.glob("*.txt")):
        if file == listed:
            continue
        for number, line in enumerate(read_text(file).splitlines(), start=1):
            words, where = line.split(), f"line {number} of `{file}`"
            if not words:
                continue
            box = numbers_in(" ".join(words[1:5]), where)
            if not words[0].isdecimal() or len(words) not in (5, 6) or len(box) != 4:
                raise PromptError(
                    f"{where} is no box", got=line[:60], expected="class, center and size in 0..1"
                )
            index = int(words[0][:9])
            label = classes[index] if index < len(classes) else words[0]
            yield PromptRow(PurePath(file.stem), where, box, label=label, is_relative=True)


def _path(text: str) -> PurePath:
    return PurePath(text.replace("\\", "/"))


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
