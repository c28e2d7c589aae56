"""The formats that results are written in: one table for the library, the shell and the server.

    format = find_format("coco")
    data = format.encode(images, WriteOptions(label="cat"))      # the bytes of a file

A format has one file per image, or one file for all images; the frames of a video likewise.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from samgraph.errors import OptionError, OutputError
from samgraph.formats.coco import coco_document
from samgraph.formats.coco_vid import coco_vid_document
from samgraph.formats.cvat import cvat_document
from samgraph.formats.label_studio import label_studio_document
from samgraph.formats.labelme import labelme_document
from samgraph.formats.outlines import outlines_document
from samgraph.formats.pictures import (
    LOSSLESS,
    OPACITY,
    cutout_bytes,
    davis_bytes,
    mask_bytes,
    object_bytes,
    overlay_bytes,
)
from samgraph.formats.sam import sam_document
from samgraph.formats.segment import SegmentedImage, labels_of
from samgraph.formats.tracks import mot_lines, mots_lines
from samgraph.formats.yolo import CLASS_FILE, yolo_lines
from samgraph.media.image.reading import SUFFIXES
from samgraph.untrusted.text import json_bytes

ImageFormat: TypeAlias = Literal[
    "png", "cutout", "overlay", "davis", "coco", "cvat", "label-studio", "labelme", "polygons",
    "sam", "yolo",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the formats leave open.

    Args:
        label: What the objects are called in annotations.
        tolerance: How far a polygon may be from the mask's edge, in pixels; above 0, formats that
            have both get polygons instead of masks.
        crop: Crop a cut-out to the object.
        opacity: Of the tint in an overlay, 0 to 1.
        classes: The class names of YOLO, in order; those of the image itself if omitted.
    """

    label: str | None = None
    tolerance: float = 0.0
    crop: bool = False
    opacity: float = OPACITY
    classes: tuple[str, ...] | None = None

    @property
    def shapes(self) -> dict[str, Any]:
        """The keyword arguments of formats that hold masks or polygons."""
        return {"polygons": self.tolerance > 0, "tolerance": self.tolerance}


Encoder: TypeAlias = Callable[[Sequence[SegmentedImage], str, WriteOptions], bytes]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: what it holds, its files, and how it is written.

    Args:
        name: As in `--format` and `result.save`.
        holds: What is in a file, in words.
        suffixes: Those a file may have; the first is used where only a folder is named.
        encoder: Makes the bytes of a file; None for a format of videos alone.
        file: The file of all images within a folder; None where each image has its own.
        video_file: The file of all frames of a video; None where each frame has its own.
        implied_by: The suffixes that imply this format where none is named.
        ending: Added to the image's name where no output is named: `cat_mask.png`.
        class_file: The file in a folder that lists the labels.
        has_file_per_mask: Whether several masks of an image can have a file each.
        has_object_folders: Whether those of a video are in a folder per object.
        for_images: Whether results of single images can be written.
        needs_pixels: Whether the image itself is in it.
    """

    name: str
    holds: str
    suffixes: tuple[str, ...]
    encoder: Encoder | None
    file: str | None = None
    video_file: str | None = None
    implied_by: tuple[str, ...] = ()
    ending: str = ""
    class_file: str | None = None
    has_file_per_mask: bool = False
    has_object_folders: bool = False
    for_images: bool = True
    needs_pixels: bool = False

    def encode(
        self,
        images: Sequence[SegmentedImage],
        options: WriteOptions | None = None,
        suffix: str | None = None,
    ) -> bytes:
        """The bytes of a file with one image, or with all of them where the format has one file.

        Raises:
            OutputError: The format does not hold images.
        """
        if self.encoder is None:
            raise OutputError(f"{self.name} holds videos, not images")
        options = options or WriteOptions()
        named = [image.labelled(options.label) for image in images]
        return self.encoder(named, suffix or self.suffixes[0], options)


def _json(document: object) -> bytes:
    return json_bytes(document)


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _yolo(images: Sequence[SegmentedImage], suffix: str, options: WriteOptions) -> bytes:
    classes = labels_of(images) if options.classes is None else options.classes
    lines = yolo_lines(images[0], classes, tolerance=options.tolerance)
    return _lines(lines)


_TABLE = (
    Format(
        "png", "the mask: white on black; several objects: a label map", (*LOSSLESS, ".bmp"),
        lambda images, suffix, _: mask_bytes(images[0], suffix),
        implied_by=(".png",), ending="_mask", has_file_per_mask=True,
    ),
    Format(
        "cutout", "the object alone, transparent around it", LOSSLESS,
        lambda images, suffix, options: cutout_bytes(images[0], suffix, crop=options.crop),
        ending="_cutout", has_file_per_mask=True, needs_pixels=True,
    ),
    Format(
        "overlay", "the image with the objects tinted; of a video, a video",
        (".jpg", *(suffix for suffix in SUFFIXES if suffix != ".jpg")),
        lambda images, suffix, options: overlay_bytes(images[0], suffix, options.opacity),
        video_file="overlay.mp4",
        implied_by=tuple(suffix for suffix in SUFFIXES if suffix != ".png"),
        ending="_overlay", needs_pixels=True,
    ),
    Format(
        "davis", "DAVIS: palette PNG whose pixel values are object ids", (".png",),
        lambda images, _, __: davis_bytes(images[0]), ending="_davis",
    ),
    Format(
        "sav", "SA-V: a folder per object, with a palette PNG per frame", (".png",),
        lambda images, _, __: object_bytes(images[0]),
        has_file_per_mask=True, has_object_folders=True, for_images=False,
    ),
    Format(
        "coco", "COCO instance annotations", (".json",),
        lambda images, _, options: _json(coco_document(images, **options.shapes)),
        file="annotations.json", video_file="annotations.json", implied_by=(".json",),
    ),
    Format(
        "coco-vid", "COCO for videos (CocoVID): instances over frames", (".json",),
        lambda images, _, options: _json(coco_vid_document(images, **options.shapes)),
        file="annotations.json", video_file="annotations.json", for_images=False,
    ),
    Format(
        "mot", "MOT Challenge: a line of text per box", (".txt",),
        lambda images, _, __: _lines(mot_lines(images)),
        file="tracks.txt", video_file="tracks.txt", for_images=False,
    ),
    Format(
        "mots", "MOTS: a line of text per mask", (".txt",),
        lambda images, _, __: _lines(mots_lines(images)),
        file="tracks.txt", video_file="tracks.txt", for_images=False,
    ),
    Format(
        "cvat", "CVAT for images 1.1", (".xml",),
        lambda images, _, options: cvat_document(images, **options.shapes),
        file="annotations.xml", video_file="annotations.xml", implied_by=(".xml",),
    ),
    Format(
        "label-studio", "Label Studio tasks with predictions", (".json",),
        lambda images, _, options: _json(label_studio_document(images, **options.shapes)),
        file="tasks.json", video_file="tasks.json",
    ),
    Format(
        "labelme", "labelme annotations", (".json",),
        lambda images, _, options: _json(labelme_document(images[0], **options.shapes)),
    ),
    Format(
        "polygons", "outlines with holes, plain JSON", (".json",),
        lambda images, _, options: _json(outlines_document(images, tolerance=options.tolerance)),
        file="polygons.json", video_file="polygons.json",
    ),
    Format(
        "sam", "the dicts of SAM's automatic mask generator", (".json",),
        lambda images, _, __: _json(sam_document(images)),
        file="masks.json", video_file="masks.json",
    ),
    Format(
        "yolo", "YOLO segmentation labels", (".txt",), _yolo,
        implied_by=(".txt",), class_file=CLASS_FILE,
    ),
    Format(
        "jsonl", "a JSON line per frame: scores, boxes, masks", (".jsonl",), None,
        video_file="frames.jsonl",
    ),
)  # fmt: skip

FORMATS: dict[str, Format] = {entry.name: entry for entry in _TABLE}
IMAGE_FORMATS: tuple[str, ...] = tuple(
    entry.name for entry in _TABLE if entry.encoder and entry.for_images
)


def find_format(name: str) -> Format:
    """The format with this name.

    Raises:
        OptionError: There is none.
    """
    if not isinstance(name, str) or name not in FORMATS:
        raise OptionError(f"there is no format `{name}`", expected=", ".join(FORMATS))
    return FORMATS[name]


def format_for(path: str | os.PathLike[str], name: str | None = None) -> Format:
    """The format to write a file of image results in: the named one, or what its suffix implies.

    Raises:
        OptionError: There is no such format.
        OutputError: The suffix implies no format, or is not one of the named format's.
    """
    suffix = PurePath(path).suffix.lower()
    if name is None:
        for found in FORMATS.values():
            if suffix in found.implied_by:
                return found
        raise OutputError(
            f"`{path}` does not say what to write",
            got=suffix or "no suffix",
            expected=".png, .jpg, .webp, .json, .xml or .txt",
            hint=f"name it `{path}.png`",
        )
    found = find_format(name)
    is_for_images = found.encoder is not None and found.for_images
    if suffix not in found.suffixes or not is_for_images:
        raise OutputError(
            f"`{path}` cannot hold the format {name}",
            got=suffix or "no suffix",
            expected=", ".join(found.suffixes) if is_for_images else ", ".join(IMAGE_FORMATS),
            hint=f"name it `{path}{found.suffixes[0]}`" if is_for_images and not suffix else None,
        )
    return found
