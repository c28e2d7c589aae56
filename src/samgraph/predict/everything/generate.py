"""Automatic masks: every point of a grid is a prompt, and the good masks are kept.

    everything = model.everything("truck.jpg")
    print(everything)                               # 57 masks, 1800x1200, best 0.98
    everything.save("masks.json"); everything.save("overlay.jpg")

The decoder's work on the image alone is done once for all points. Masks are filtered and run-length
encoded a few at a time: no array grows with the number of masks.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import DeviceMemoryError, OptionError, SamgraphWarning
from samgraph.formats.sam import Mode
from samgraph.formats.segment import Segment
from samgraph.media.image.reading import MAX_PIXELS, read_image
from samgraph.models.family import SegmentationModel
from samgraph.predict.everything import candidates as filtering
from samgraph.predict.everything import on_device
from samgraph.predict.everything.candidates import Candidate
from samgraph.predict.everything.grids import Crop, crops_of
from samgraph.predict.everything.options import EverythingOptions, read_options
from samgraph.predict.image import decoding
from samgraph.predict.image.encoded import EncodedImage, encode_pixels
from samgraph.predict.image.result import LOGIT_LIMIT
from samgraph.predict.output import Picture, Segmentation, name_of
from samgraph.predict.prompts import PromptBatch, scale_points
from samgraph.progress import Progress, ShowProgress

Floats: TypeAlias = NDArray[np.float32]


class Everything(Segmentation):
    """Automatic masks of an image, best first: a sequence of run-length encoded segments."""

    def __init__(
        self, picture: Picture, segments: Sequence[Segment], options: EverythingOptions
    ) -> None:
        self.picture, self.options = picture, options
        self._segments = tuple(segments)

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> "Everything": ...
    def __getitem__(self, index: int | slice) -> "Segment | Everything":
        if isinstance(index, slice):
            return Everything(self.picture, self._segments[index], self.options)
        return self._segments[index]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __repr__(self) -> str:
        best = f", best {self.scores.max():.2f}" if len(self) else ""
        plural = "" if len(self) == 1 else "s"
        return f"{len(self)} mask{plural}, {self.picture.size_text}{best}"

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The masks, each with its score, stability, point and crop."""
        return self._segments

    @property
    def chosen(self) -> tuple[Segment, ...]:
        """All of them."""
        return self._segments

    @property
    def scores(self) -> Floats:
        """The predicted IoU of each mask, [n]."""
        return np.array([segment.score for segment in self._segments], np.float32)

    @property
    def stability(self) -> Floats:
        """The stability score of each mask, [n]."""
        return np.array([segment.stability for segment in self._segments], np.float32)

    @property
    def boxes(self) -> NDArray[np.int64]:
        """The tight box of each mask, [n, 4]: left, top, right, bottom."""
        boxes = [segment.box_xyxy for segment in self._segments]
        return np.array(boxes, np.int64).reshape(-1, 4)

    @property
    def areas(self) -> NDArray[np.int64]:
        """The pixels in each mask, [n]."""
        return np.array([segment.area for segment in self._segments], np.int64)

    def to_sam_dicts(self, mode: Mode | None = None) -> list[dict[str, Any]]:
        """The dicts that SAM's automatic mask generator returns, encoded as `output_mode` says."""
        return super().to_sam_dicts(mode or self.options.output_mode)


def segment_everything(
    core: SegmentationModel,
    source: Any,
    *,
    name: str | None = None,
    max_pixels: int = MAX_PIXELS,
    progress: ShowProgress = None,
    options: EverythingOptions | None = None,
    **named: Any,
) -> Everything:
    """Automatic masks of an image.

    Args:
        core: The model.
        source: What `model.image` takes, or an encoded image.
        name: The name of the image in written files.
        max_pixels: The most pixels accepted, checked before decoding.
        progress: A function of the points done and of all points; True to print, False not to.
            If omitted, printed where standard error is a terminal.
        options: All options as one value.
        named: Or the fields of `EverythingOptions`: `points_per_side`, `pred_iou_thresh`, ...

    Raises:
        ImageError: The image cannot be read.
        OptionError: An option does not exist, or its value is out of range.
    """
    if options is not None and named:
        raise OptionError("give either `options` or single options", got=", ".join(named))
    chosen = (read_options(named) if options is None else options).of_model(core.config)
    encoded = source if isinstance(source, EncodedImage) else None
    picture = _picture(source, name, max_pixels) if encoded is None else encoded.picture
    found = _search(core, picture, encoded, chosen, progress)
    if chosen.crop_n_layers > 0:
        found = filtering.best_of_crops(found, chosen.crop_nms_thresh)
    if chosen.min_mask_region_area > 0:
        overlap = max(chosen.box_nms_thresh, chosen.crop_nms_thresh)
        found = filtering.cleaned(found, chosen.min_mask_region_area, overlap)
    return Everything(picture, [_segment(candidate) for candidate in found], chosen)


def _picture(source: Any, name: str | None, max_pixels: int) -> Picture:
    pixels = read_image(source, max_pixels=max_pixels)
    return Picture(name or name_of(source), (pixels.shape[0], pixels.shape[1]), pixels)


def _search(
    core: SegmentationModel,
    picture: Picture,
    encoded: EncodedImage | None,
    options: EverythingOptions,
    progress: ShowProgress,
) -> list[Candidate]:
    """The masks kept from the image and from each crop of it."""
    crops = crops_of(picture.size_hw, options.crop_n_layers, options.crop_overlap_ratio)
    _check_crops(crops)
    total = sum(len(options.grids[crop.layer]) for crop in crops)
    found: list[Candidate] = []
    with Progress(total, "points", name=picture.name, show=progress) as shown:
        for crop in crops:
            if encoded is None or crop is not crops[0]:
                image = _encode_crop(core, picture, crop)
                image.falls_back = encoded is None or encoded.falls_back
            else:
                image = encoded
            found += _search_crop(image, crop, picture.size_hw, options, shown)
    return found


def _check_crops(crops: Sequence[Crop]) -> None:
    if any(min(crop.size_hw) < 1 for crop in crops):
        raise OptionError(
            "the image is too small for so many crops", hint="use fewer `crop_n_layers`"
        )


def _encode_crop(core: SegmentationModel, picture: Picture, crop: Crop) -> EncodedImage:
    pixels = picture.need_pixels()[crop.top : crop.bottom, crop.left : crop.right]
    part = Picture(picture.name, crop.size_hw, pixels)
    return EncodedImage(core, part, encode_pixels(core, [part])[0])


def _search_crop(
    image: EncodedImage,
    crop: Crop,
    size_hw: tuple[int, int],
    options: EverythingOptions,
    progress: Progress,
) -> list[Candidate]:
    """The masks kept from the points of a crop, without duplicates."""
    images = image.core.buffers.images
    done = progress.done
    if images is not None and not options.use_m2m:
        try:
            return on_device.search_crop(images, image, crop, size_hw, options, progress)
        except DeviceMemoryError as error:
            if image.core.buffers.images is images:
                warnings.warn(
                    f"{error.what}: masks of `{image.name}` are filtered on the host, which is "
                    "slower; use fewer points or a smaller image to avoid that",
                    SamgraphWarning,
                    stacklevel=2,
                )
        progress.advance(done - progress.done)
    height, width = crop.size_hw
    points = (options.grids[crop.layer] * np.array([width, height])).astype(np.float32)
    found: list[Candidate] = []
    for start in range(0, len(points), options.points_per_batch):
        batch = points[start : start + options.points_per_batch]
        for first in range(0, len(batch), decoding.BATCH):
            some = batch[first : first + decoding.BATCH]
            predictions = _predict(image, some, options)
            found += filtering.candidates_of(predictions, some, crop, size_hw, options)
        progress.advance(len(batch))
    return filtering.best_of_crop(found, options.box_nms_thresh)


def _predict(
    image: EncodedImage, points_xy: Floats, options: EverythingOptions
) -> decoding.MaskPredictions:
    """The masks of some points; with `use_m2m`, each refined once as its own mask prompt."""
    prompts = _clicks(image, points_xy)
    predictions = image.decode(prompts, multimask=options.multimask)
    if not options.use_m2m:
        return predictions
    count, each, side, _ = predictions.logits.shape
    logits = predictions.logits.reshape(-1, 1, side, side).clip(-LOGIT_LIMIT, LOGIT_LIMIT)
    again = PromptBatch(
        np.repeat(prompts.points, each, axis=0),
        np.repeat(prompts.labels, each, axis=0),
        logits,
        np.ones(len(logits), np.bool_),
    )
    refined = image.decode(again, multimask=False)
    return decoding.MaskPredictions(
        refined.logits.reshape(count, each, side, side),
        refined.scores.reshape(count, each),
        refined.stability.reshape(count, each),
    )


def _clicks(image: EncodedImage, points_xy: Floats) -> PromptBatch:
    """One positive click per prompt."""
    points = scale_points(points_xy, image.size_hw, image.core.config.image_size)
    count = len(points)
    labels, has_mask = np.ones((count, 1), np.int64), np.zeros(count, np.bool_)
    return PromptBatch(points[:, None], labels, None, has_mask)


def _segment(candidate: Candidate) -> Segment:
    return Segment(
        candidate.rle,
        score=candidate.score,
        stability=candidate.stability,
        point_xy=candidate.point_xy,
        crop_xyxy=candidate.crop.box_xyxy,
    )
