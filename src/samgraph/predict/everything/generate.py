"""Masks of everything in an image: a grid of points, each asked for what is there.

    everything = model.everything("truck.jpg")
    print(everything)                               # 57 masks, 1800x1200, best 0.98
    everything.save("masks.json"); everything.save("overlay.jpg")

The image-side work of the decoder's first layer is shared by all points. Masks are judged and
run-length encoded as they come, a few at a time: no array grows with the number of masks.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OptionError
from samgraph.formats.sam import Mode
from samgraph.formats.segment import Segment
from samgraph.media.image.reading import MAX_PIXELS, read_image
from samgraph.models.family import SegmentationModel
from samgraph.predict.everything import candidates as judging
from samgraph.predict.everything.candidates import Candidate
from samgraph.predict.everything.grids import Crop, crops_of
from samgraph.predict.everything.settings import EverythingSettings, read_settings
from samgraph.predict.image import decoding
from samgraph.predict.image.encoded import EncodedImage, encode_pixels
from samgraph.predict.image.result import LOGIT_LIMIT
from samgraph.predict.output import Segmentation
from samgraph.predict.picture import Picture, name_of
from samgraph.predict.progress import Progress, reporting
from samgraph.predict.prompts import PromptBatch, scale_points

Floats: TypeAlias = NDArray[np.float32]


class Everything(Segmentation):
    """Masks of everything in an image, best first; a list of segments, kept run-length encoded."""

    def __init__(
        self, picture: Picture, segments: Sequence[Segment], settings: EverythingSettings
    ) -> None:
        self.picture, self.settings = picture, settings
        self._segments = tuple(segments)

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> "Everything": ...
    def __getitem__(self, index: int | slice) -> "Segment | Everything":
        if isinstance(index, slice):
            return Everything(self.picture, self._segments[index], self.settings)
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
    def masks(self) -> NDArray[np.bool_]:
        """All masks, bool [n, H, W], decoded anew: n times the size of the image in memory."""
        if not self._segments:
            return np.zeros((0, *self.size_hw), np.bool_)
        return np.stack([segment.mask for segment in self._segments])

    @property
    def scores(self) -> Floats:
        """The model's estimate of each mask's quality, [n]."""
        return np.array([segment.score for segment in self._segments], np.float32)

    @property
    def stability(self) -> Floats:
        """How little each mask changes with its threshold, [n]."""
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
        """The dicts that SAM's automatic mask generator returns, masks as `output_mode` says."""
        return super().to_sam_dicts(mode or self.settings.output_mode)


def segment_everything(
    core: SegmentationModel,
    source: Any,
    *,
    name: str | None = None,
    max_pixels: int = MAX_PIXELS,
    progress: bool | Progress | None = None,
    settings: EverythingSettings | None = None,
    **named: Any,
) -> Everything:
    """Find masks for everything in an image.

    Args:
        core: The model.
        source: What `model.image` takes, or an image that is encoded already.
        name: What to call the image in written files.
        max_pixels: The most pixels accepted, told from the header.
        progress: A function of the points done and all points; True for a bar, False for none.
            Left out: a bar where there is a terminal.
        settings: What to look for and what to keep, all at once; or each by its name.
        named: The fields of `EverythingSettings`: `points_per_side`, `pred_iou_thresh`, ...

    Raises:
        ImageError: The image cannot be read.
        OptionError: A setting does not exist or makes no sense.
    """
    if settings is not None and named:
        raise OptionError("give either `settings` or single ones", got=", ".join(named))
    chosen = read_settings(named) if settings is None else settings
    encoded = source if isinstance(source, EncodedImage) else None
    picture = _picture(source, name, max_pixels) if encoded is None else encoded.picture
    found = _search(core, picture, encoded, chosen, progress)
    if chosen.crop_n_layers > 0:
        found = judging.best_of_crops(found, chosen.crop_nms_thresh)
    if chosen.min_mask_region_area > 0:
        overlap = max(chosen.box_nms_thresh, chosen.crop_nms_thresh)
        found = judging.cleaned(found, chosen.min_mask_region_area, overlap)
    return Everything(picture, [_segment(one) for one in found], chosen)


def _picture(source: Any, name: str | None, max_pixels: int) -> Picture:
    pixels = read_image(source, max_pixels=max_pixels)
    return Picture(name or name_of(source), (pixels.shape[0], pixels.shape[1]), pixels)


def _search(
    core: SegmentationModel,
    picture: Picture,
    encoded: EncodedImage | None,
    settings: EverythingSettings,
    progress: bool | Progress | None,
) -> list[Candidate]:
    """What is found in the image and in each crop of it."""
    crops = crops_of(picture.size_hw, settings.crop_n_layers, settings.crop_overlap_ratio)
    _check_crops(crops)
    total = sum(len(settings.grids[crop.layer]) for crop in crops)
    found: list[Candidate] = []
    with reporting(progress, picture.name, total) as report:
        for crop in crops:
            if encoded is None or crop is not crops[0]:
                image = _encode_crop(core, picture, crop)
                image.falls_back = encoded is None or encoded.falls_back
            else:
                image = encoded
            found += _search_crop(image, crop, picture.size_hw, settings, report)
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
    settings: EverythingSettings,
    report: Callable[[int], None],
) -> list[Candidate]:
    """Every good mask that the points of a crop ask for, without duplicates."""
    height, width = crop.size_hw
    points = (settings.grids[crop.layer] * np.array([width, height])).astype(np.float32)
    found: list[Candidate] = []
    for start in range(0, len(points), settings.points_per_batch):
        batch = points[start : start + settings.points_per_batch]
        for first in range(0, len(batch), decoding.AT_ONCE):
            some = batch[first : first + decoding.AT_ONCE]
            answers = _ask(image, some, settings)
            found += judging.candidates_of(answers, some, crop, size_hw, settings)
        report(len(batch))
    return judging.best_of_crop(found, settings.box_nms_thresh)


def _ask(image: EncodedImage, points_xy: Floats, settings: EverythingSettings) -> decoding.Answers:
    """The masks of some points; with `use_m2m`, each given back once to be refined."""
    prompts = _clicks(image, points_xy)
    answers = image.answer(prompts, multimask=settings.multimask)
    if not settings.use_m2m:
        return answers
    count, each, side, _ = answers.logits.shape
    logits = answers.logits.reshape(-1, 1, side, side).clip(-LOGIT_LIMIT, LOGIT_LIMIT)
    again = PromptBatch(
        np.repeat(prompts.points, each, axis=0),
        np.repeat(prompts.labels, each, axis=0),
        logits,
        np.ones(len(logits), np.bool_),
    )
    refined = image.answer(again, multimask=False)
    return decoding.Answers(
        refined.logits.reshape(count, each, side, side),
        refined.scores.reshape(count, each),
        refined.stability.reshape(count, each),
    )


def _clicks(image: EncodedImage, points_xy: Floats) -> PromptBatch:
    """One positive click a prompt."""
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
