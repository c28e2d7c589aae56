"""Masks in the pipelines of others: a class for Ray Data, Daft, and anything that maps batches.

    from samgraph.scale import SegmentBatch

    ds = ray.data.read_images("s3://bucket/photos", include_paths=True)
    ds = ds.map_batches(SegmentBatch, fn_constructor_kwargs={"model": "sam2.1-tiny"},
                        concurrency=4, batch_size=8)             # num_gpus=1 on GPUs
    ds.write_parquet("s3://bucket/masks")

A batch is a dict of columns. `image` has arrays, bytes of files, or paths; without it, `bytes` or
`path` is taken. Columns `points`, `labels`, `box`, `boxes` are prompts, as `EncodedImage.predict`
takes them; without any, everything is segmented. See `SegmentBatch` for the columns that are added.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, OptionError, SamgraphError
from samgraph.formats.segment import Segment
from samgraph.jobs.batch.remote import is_remote, read_remote
from samgraph.media.image.reading import read_image
from samgraph.media.mask import rle as run_lengths
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.image.encoded import EncodedImage, encode_pixels
from samgraph.predict.model import Model, load
from samgraph.predict.output import Picture
from samgraph.untrusted.arguments import choice, whole

__all__ = ["MASK_COLUMNS", "SegmentBatch", "decode_masks"]

PROMPTS = ("points", "labels", "box", "boxes")
SOURCES = ("image", "bytes", "path")
MASK_COLUMNS = ("height", "width", "rle", "score", "stability", "mask_box", "area", "error")
Columns: TypeAlias = dict[str, NDArray[Any]]
OnError: TypeAlias = Literal["record", "raise"]


class SegmentBatch:
    """Masks for batches of images: picklable, loads its model where it is first called.

    It returns the columns it was given, but for pixels, and per image:

        height, width    of the image
        rle              the masks, as COCO's compressed run lengths (see `decode_masks`)
        score, stability, area, mask_box      of each mask; a box is left, top, right, bottom
        error            why an image has no mask; empty where it went well

    Args:
        model: What `samgraph.load` takes: a name, or the path of a checkpoint.
        image: The column with images; `image`, `bytes` or `path` if omitted, the first there is.
        multimask: Three masks per prompt instead of the best.
        everything: The options of automatic masks.
        batch: Images that go through the encoder at once.
        on_error: With "raise", an image that cannot be used ends the call.
        options: Further arguments of `samgraph.load`: device, precision, threads, image_size, ...
    """

    def __init__(
        self,
        model: str = "samgraph-nano",
        *,
        image: str | None = None,
        multimask: bool = False,
        everything: EverythingOptions | None = None,
        batch: int = 2,
        on_error: OnError = "record",
        **options: Any,
    ) -> None:
        self._source, self._options = model, options
        self._column, self._multimask = image, bool(multimask)
        self._everything = everything or EverythingOptions()
        self._batch = whole("batch", batch, 1)
        self._on_error = choice("on_error", on_error, ("record", "raise"))
        self._model: Model | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the model, which is loaded again where this goes."""
        return {**vars(self), "_model": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "_lock": threading.Lock()})

    def __repr__(self) -> str:
        return f"SegmentBatch({self._source!r})"

    @property
    def model(self) -> Model:
        """The model, loaded when it is first needed."""
        with self._lock:
            if self._model is None:
                self._model = load(self._source, **self._options)
            return self._model

    def __call__(self, batch: Mapping[str, Any]) -> Columns:
        """The batch with masks.

        Raises:
            OptionError: There is no column with images, or columns differ in length.
            SamgraphError: An image cannot be used, and `on_error` is "raise".
        """
        column = self._find_column(batch)
        count = len(batch[column])
        prompts = {name: batch[name] for name in PROMPTS if name in batch and name != column}
        for name, values in batch.items():
            if len(values) != count:
                raise OptionError(f"`{name}` has {len(values)} rows", expected=count)
        rows: list[dict[str, Any]] = []
        for start in range(0, count, self._batch):
            some = range(start, min(start + self._batch, count))
            pictures = [self._read(batch[column][i]) for i in some]
            given = [{name: _plain(values[i]) for name, values in prompts.items()} for i in some]
            rows += self._rows(pictures, given)
        pixels = {column} if column != "path" else set()
        kept = {name: _column(values) for name, values in batch.items() if name not in pixels}
        return {**kept, **_columns(rows)}

    def _find_column(self, batch: Mapping[str, Any]) -> str:
        names = SOURCES if self._column is None else (self._column,)
        found = next((name for name in names if name in batch), None)
        if found is None:
            raise OptionError(
                f"a batch has no column `{names[0]}`",
                got=", ".join(batch) or "no column",
                hint="name the column of images: SegmentBatch(image=...)",
            )
        return found

    def _read(self, value: Any) -> Picture | SamgraphError:
        try:
            if isinstance(value, str):
                value = read_remote(value) if is_remote(value) else str(value)  # not numpy's
            if value is None:
                raise ImageError("there is no image", got="nothing")
            pixels = read_image(np.asarray(value) if isinstance(value, list) else value)
        except SamgraphError as error:
            return self._noted(error)
        return Picture("image", (pixels.shape[0], pixels.shape[1]), pixels)

    def _noted(self, error: SamgraphError) -> SamgraphError:
        """The error of one image, which is raised where that is wanted."""
        if self._on_error == "raise":
            raise error
        return error

    def _rows(
        self, pictures: Sequence[Picture | SamgraphError], prompts: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """A row per image of one run of the encoder."""
        core = self.model.core
        good = [picture for picture in pictures if isinstance(picture, Picture)]
        embeddings = iter(encode_pixels(core, good) if good else [])
        rows = []
        for picture, given in zip(pictures, prompts, strict=True):
            if not isinstance(picture, Picture):
                rows.append(_row((0, 0), (), picture))
                continue
            image = EncodedImage(core, picture, next(embeddings))
            try:
                rows.append(_row(picture.size_hw, self._segments(image, given), None))
            except SamgraphError as error:
                rows.append(_row(picture.size_hw, (), self._noted(error)))
        return rows

    def _segments(self, image: EncodedImage, given: dict[str, Any]) -> Sequence[Segment]:
        if not given:
            options = self._everything
            return self.model.everything(image, progress=False, options=options).segments
        points = given.get("points")
        is_click = given.get("box") is None and given.get("boxes") is None and points is not None
        is_ambiguous = is_click and np.asarray(points, np.float64).size == 2
        result = image.predict(**given, multimask=self._multimask or is_ambiguous)
        return result.segments if self._multimask else result.best.segments


def decode_masks(rle: Sequence[str], height: int, width: int) -> NDArray[np.bool_]:
    """The masks of a row, bool [n, H, W].

    Raises:
        ImageError: The run lengths are damaged, or of another size.
    """
    masks = [run_lengths.decode({"size": [height, width], "counts": code}) for code in rle]
    return np.stack(masks) if masks else np.zeros((0, height, width), np.bool_)


def _row(
    size_hw: tuple[int, int], segments: Sequence[Segment], error: SamgraphError | None
) -> dict[str, Any]:
    return {
        "height": size_hw[0],
        "width": size_hw[1],
        "rle": [segment.rle["counts"].decode("ascii") for segment in segments],
        "score": [float(segment.score or 0.0) for segment in segments],
        "stability": [float(segment.stability or 0.0) for segment in segments],
        "mask_box": [[float(side) for side in segment.box_xyxy] for segment in segments],
        "area": [int(segment.area) for segment in segments],
        "error": "" if error is None else str(error),
    }


def _columns(rows: Sequence[dict[str, Any]]) -> Columns:
    sizes = {name: np.array([row[name] for row in rows], np.int32) for name in MASK_COLUMNS[:2]}
    others = {name: _listed([row[name] for row in rows]) for name in MASK_COLUMNS[2:]}
    return {**sizes, **others}


def _listed(values: Sequence[Any]) -> NDArray[Any]:
    """A column of lists or texts."""
    column = np.empty(len(values), object)
    for index, value in enumerate(values):  # numpy would take lists of one length for an axis
        column[index] = value
    return column


def _column(values: Any) -> NDArray[Any]:
    return values if isinstance(values, np.ndarray) else _listed(list(values))


def _plain(value: Any) -> Any:
    """A prompt without the nests of object arrays that tables make of lists."""
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value] if value.dtype == object else value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
