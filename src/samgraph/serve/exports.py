"""Results in files: every format of `formats/table.py`, and pictures with an effect."""

from dataclasses import dataclass
from pathlib import Path, PurePath

from samgraph.errors import OptionError
from samgraph.formats.segment import Segment, SegmentedImage
from samgraph.formats.table import FORMATS, IMAGE_FORMATS, Format, WriteOptions
from samgraph.media.image.reading import Rgb, encode_image, read_image
from samgraph.media.mask import rle as run_lengths
from samgraph.serve.effects import apply, object_paint
from samgraph.serve.image_sessions import rle_of
from samgraph.serve.replies import RequestError
from samgraph.serve.schema import ExportObject, FormatInfo, FormatsInfo, ImageExportBody
from samgraph.serve.store import UPLOAD, Entry

EFFECT = "effect"
MEDIA = {
    ".json": "application/json",
    ".xml": "application/xml",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".zip": "application/zip",
    ".mp4": "video/mp4",
    ".jsonl": "application/jsonl",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file for a client."""

    name: str
    data: bytes

    @property
    def media(self) -> str:
        """Its media type."""
        return MEDIA.get(PurePath(self.name).suffix, "application/octet-stream")


def formats_info() -> FormatsInfo:
    """The formats of images and of videos."""
    image = [_info(FORMATS[name], FORMATS[name].suffixes[0]) for name in IMAGE_FORMATS]
    image.append(FormatInfo(EFFECT, ".png", "the image with the effect"))
    video = [_info(entry, video_suffix(entry)) for entry in FORMATS.values()]
    video.append(FormatInfo(EFFECT, ".mp4", "a video with the effect"))
    return FormatsInfo(image, video)


def video_suffix(entry: Format) -> str:
    """The suffix of what a video is exported to: a zip where each frame has a file."""
    return ".zip" if entry.video_file is None else PurePath(entry.video_file).suffix


def checked_format(name: str, effect: object, known: tuple[str, ...]) -> str:
    """The name of a format that exists.

    Raises:
        OptionError: It does not, or the effect is missing.
    """
    if name != EFFECT and name not in known:
        raise OptionError(f"there is no format `{name}`", expected=", ".join((*known, EFFECT)))
    if name == EFFECT and effect is None:
        raise OptionError("the effect is missing", hint='"effect": {"name": "blur"}')
    return name


def export_image(entry: Entry, body: ImageExportBody) -> File:
    """The objects of an image in a file.

    Raises:
        SamgraphError: The format or the effect does not exist, or a mask is damaged.
    """
    checked_format(body.format, body.effect, IMAGE_FORMATS)
    size_hw = entry.record.height, entry.record.width
    stem = PurePath(entry.record.name).stem or "image"
    if body.format == EFFECT and body.effect is not None:
        objects = [
            object_paint(number, obj.color, run_lengths.decode(rle_of(obj.mask, size_hw)))
            for number, obj in enumerate(body.objects, start=1)
        ]
        drawn = apply(body.effect, _pixels(entry.folder), objects)
        return File(f"{stem}_{body.effect.name}.png", encode_image(drawn, "PNG"))
    chosen = FORMATS[body.format]
    segments = tuple(
        _segment(obj, number, size_hw) for number, obj in enumerate(body.objects, start=1)
    )
    pixels = _pixels(entry.folder) if chosen.needs_pixels else None
    image = SegmentedImage(entry.record.name, size_hw, segments, pixels)
    options = WriteOptions(tolerance=body.tolerance, crop=body.crop)
    suffix = chosen.suffixes[0]
    return File(f"{stem}{chosen.ending}{suffix}", chosen.encode([image], options, suffix))


def _segment(obj: ExportObject, number: int, size_hw: tuple[int, int]) -> Segment:
    own = obj.id if isinstance(obj.id, int) and 1 <= obj.id <= 255 else number
    return Segment(
        rle_of(obj.mask, size_hw), label=obj.name or None, score=obj.score, object_id=own
    )


def _pixels(folder: Path) -> Rgb:
    if not (folder / UPLOAD).exists():
        raise RequestError(410, "this image was deleted")
    return read_image(folder / UPLOAD, max_pixels=1 << 28)


def _info(entry: Format, suffix: str) -> FormatInfo:
    return FormatInfo(entry.name, suffix, entry.holds)
