"""Everything in a video: automatic masks become objects, and new things are found as they enter.

    for frame in model.video("clip.mp4").everything():          # ids last
        frame.objects, frame.masks
    for frame in model.stream().everything(camera): ...         # in constant memory

On the first frame, every `every` frames, and when the picture has changed, automatic masks are
made from the features that tracking has anyway. A mask that overlaps a tracked object is that
object, one that lies within tracked objects is a part of them; any other becomes a new object. An
object that is absent stays in memory for `end_after` frames: when its own score says that it is
back, it has its id, and what was found in its place meanwhile ends. Where there are more than
`max_objects`, the absent and the smallest end.

Masks are compared at the low resolution of the decoder, L x L.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.errors import OptionError
from samgraph.formats.segment import Segment
from samgraph.media.image.reading import Rgb
from samgraph.predict.everything.generate import segment_everything
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.features import Embedding
from samgraph.predict.image.encoded import EncodedImage
from samgraph.predict.options import check_names
from samgraph.predict.output import Picture
from samgraph.predict.video.automatic import THUMBNAIL
from samgraph.predict.video.feed import ReadyFrame, feeding
from samgraph.predict.video.options import StreamOptions, TrackOptions
from samgraph.predict.video.prompts import ObjectId, checked_frame, video_prompt
from samgraph.predict.video.ranges import count_frames, last_frame
from samgraph.predict.video.result import FrameResult, ObjectResult
from samgraph.predict.video.stream import Stream
from samgraph.predict.video.video import Video
from samgraph.progress import ShowProgress, counted
from samgraph.untrusted.arguments import number, whole

Mask = NDArray[np.bool_]

# A search because of a change is at least so many frames after the last.
GAP: Final = 5
# Two tracked objects that overlap so much are one: the younger ends.
SAME_IOU: Final = 0.8
POINTS_PER_SIDE: Final = 16


def _default_masks() -> EverythingOptions:
    return EverythingOptions(points_per_side=POINTS_PER_SIDE)


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """When new things are searched for, and which become objects.

    Args:
        every: Frames between searches; 0 for the first frame alone, and changes.
        change: How much the picture must differ from the one last searched, as the mean difference
            of brightness, 0 to 1, for a search at once; 0 for never.
        merge_iou: The IoU from which a mask is that of a tracked object.
        containment: The share of a mask within tracked objects from which it is a part of them.
        end_after: Frames after which an absent object ends.
        max_objects: The most objects that are tracked; the absent and the smallest end.
        max_ids: The most objects in all; None for no limit.
        min_area: The least area of a new object, as a share of the frame.
        max_area: The largest.
        masks: How automatic masks are made; 16 points per side.
    """

    every: int = 30
    change: float = 0.1
    merge_iou: float = 0.5
    containment: float = 0.8
    end_after: int = 60
    max_objects: int = 32
    max_ids: int | None = None
    min_area: float = 0.001
    max_area: float = 0.9
    masks: EverythingOptions = field(default_factory=_default_masks)

    def __post_init__(self) -> None:
        whole("every", self.every)
        for name in ("end_after", "max_objects"):
            whole(name, getattr(self, name), 1)
        if self.max_ids is not None:
            whole("max_ids", self.max_ids, 1)
        for name in ("change", "merge_iou", "containment", "min_area", "max_area"):
            number(name, getattr(self, name), 0, 1)
        if self.masks.point_grids is not None:
            raise OptionError("`point_grids` are for single images", hint="use points_per_side")


def read_discovery(given: Mapping[str, Any]) -> DiscoveryOptions:
    """Options by name: those of `DiscoveryOptions`, and of `EverythingOptions` for the masks.

    Raises:
        OptionError: There is no such option, or its value makes no sense.
    """
    own = [entry.name for entry in fields(DiscoveryOptions) if entry.name != "masks"]
    of_masks = [entry.name for entry in fields(EverythingOptions)]
    check_names(given, own + of_masks, "`everything` of a video")
    masks = {name: value for name, value in given.items() if name in of_masks}
    made = EverythingOptions(**{"points_per_side": POINTS_PER_SIDE, **masks})
    return DiscoveryOptions(masks=made, **{n: value for n, value in given.items() if n in own})


class Discovery:
    """Finds and tracks everything on the frames of a stream."""

    def __init__(self, stream: Stream, options: DiscoveryOptions) -> None:
        self.stream, self.options = stream, options

    def step(
        self, image: Rgb, time: float | None = None, ready: ReadyFrame | None = None
    ) -> FrameResult:
        """The next frame [H, W, 3], with all objects that are tracked, old and new."""
        result = self.stream.advance(image, time, ready)
        self._age(result)
        shown = {obj.name: obj for obj in result.object_results if obj.name in self.stream.states}
        small = thumbnail(image)
        if self._is_due(result.index, small):
            automatic = self.stream.automatic
            automatic.searched, automatic.thumbnail = result.index, small
            shown = self._search(shown, image, result)
        return result if len(shown) == len(result) else self.stream.result_of(shown)

    def _is_due(self, frame: int, small: NDArray[np.uint8]) -> bool:
        """Whether this frame is searched for new things."""
        automatic, options = self.stream.automatic, self.options
        if automatic.searched is None or automatic.thumbnail is None:
            return True
        since = frame - automatic.searched
        if options.every and since >= options.every:
            return True
        before = automatic.thumbnail.astype(np.float32)
        differs = float(np.abs(small.astype(np.float32) - before).mean()) / 255
        return bool(options.change) and since >= GAP and differs > options.change

    def _age(self, result: FrameResult) -> None:
        """Count absences; objects that returned have their place again, long absent ones end."""
        lifetimes = self.stream.automatic.lifetimes
        present = dict(zip(result.objects, result.present.tolist(), strict=True))
        returned = []
        for name, life in list(lifetimes.items()):
            if not present.get(name):
                life.missed += 1
                if life.missed >= self.options.end_after:
                    self.stream.end(name)
                continue
            if life.missed:
                returned.append((name, result.index - life.missed))
            life.missed = 0
        if not returned:
            return
        masks = self._masks(result.object_results)
        for name, since in returned:
            for other, life in list(lifetimes.items()):
                is_younger = other != name and life.born >= since
                if is_younger and other in masks and self._same(masks[name], masks[other]):
                    self.stream.end(other)

    def _search(
        self, shown: dict[ObjectId, ObjectResult], image: Rgb, result: FrameResult
    ) -> dict[ObjectId, ObjectResult]:
        """Automatic masks of the frame; those that are new become objects."""
        automatic, frame = self.stream.automatic, result.index
        masks = self._masks(shown.values())
        self._end_duplicates(masks)
        for name, mask in masks.items():
            if name in automatic.lifetimes:
                automatic.lifetimes[name].area = int(np.count_nonzero(mask))
        for area, segment in self._admitted(self._new(masks, image, result)):
            if self.options.max_ids is not None and automatic.next_id > self.options.max_ids:
                break
            name = automatic.new_id(self.stream.numbers)
            self.stream.prompt(name, video_prompt(result.size_hw, mask=segment.mask))
            automatic.begin(name, frame, area)
            answer = self.stream.states[name].answers[frame]
            shown[name] = ObjectResult.of(name, answer, is_prompted=True)
        return {name: obj for name, obj in shown.items() if name in self.stream.states}

    def _new(
        self, masks: Mapping[ObjectId, Mask], image: Rgb, result: FrameResult
    ) -> list[tuple[int, Segment]]:
        """Automatic masks that no object covers, the largest first, with their areas."""
        side = self.stream.model.config.mask_size
        features = self.stream.current_features
        picture = Picture("frame", result.size_hw, image)
        embedding = Embedding(features, result.size_hw, "frame", "", self.stream.model.buffers)
        encoded = EncodedImage(self.stream.model, picture, embedding)
        found = segment_everything(
            self.stream.model, encoded, options=self.options.masks, progress=False
        )
        low = [(segment, sampled(segment.mask, side)) for segment in found]
        low = [entry for entry in low if self._is_sized(entry[1])]
        known = list(masks.values())
        covered = np.logical_or.reduce(known) if known else np.zeros((side, side), np.bool_)
        new = []
        for segment, mask in sorted(low, key=lambda entry: -np.count_nonzero(entry[1])):
            area = int(np.count_nonzero(mask))
            is_part = np.count_nonzero(mask & covered) >= self.options.containment * area
            if is_part or any(overlap(mask, one) >= self.options.merge_iou for one in known):
                continue
            known.append(mask)
            covered = covered | mask
            new.append((area, segment))
        return new

    def _admitted(self, new: list[tuple[int, Segment]]) -> list[tuple[int, Segment]]:
        """The new masks there is room for; automatic objects that matter less end for them."""
        lifetimes = self.stream.automatic.lifetimes
        ranked: list[tuple[bool, int, int, Any]] = [
            (life.missed == 0, life.area, -life.missed, name) for name, life in lifetimes.items()
        ]
        ranked += [(True, area, -1, (area, segment)) for area, segment in new]
        ranked.sort(key=lambda entry: entry[:3], reverse=True)
        for *_, name in ranked[self.options.max_objects :]:
            if isinstance(name, int | str):
                self.stream.end(name)
        return [
            entry for *_, entry in ranked[: self.options.max_objects] if isinstance(entry, tuple)
        ]

    def _end_duplicates(self, masks: dict[ObjectId, Mask]) -> None:
        """Of two objects with one mask, the younger ends, if it is automatic."""
        lifetimes = self.stream.automatic.lifetimes
        names = list(masks)
        for place, name in enumerate(names):
            for other in names[place + 1 :]:
                is_automatic = name in masks and other in masks and other in lifetimes
                if is_automatic and overlap(masks[name], masks[other]) >= SAME_IOU:
                    self.stream.end(other)
                    del masks[other]

    def _masks(self, objects: Iterable[ObjectResult]) -> dict[ObjectId, Mask]:
        """The masks [L, L] of objects that are visible."""
        stream, download = self.stream, self.stream.model.buffers.download
        found = {}
        for obj in objects:
            if obj.logits is None or obj.name not in stream.states:
                continue
            if float(download(obj.score)[0]) > stream.display.score_threshold:
                mask = np.asarray(download(obj.logits) > stream.display.mask_threshold)
                if mask.any():
                    found[obj.name] = mask
        return found

    def _same(self, one: Mask, other: Mask) -> bool:
        """Whether masks overlap as one object's do, or one lies within the other."""
        common, least = int((one & other).sum()), min(int(one.sum()), int(other.sum()))
        is_within = common >= self.options.containment * max(least, 1)
        return is_within or overlap(one, other) >= self.options.merge_iou

    def _is_sized(self, mask: Mask) -> bool:
        share = np.count_nonzero(mask) / mask.size
        return bool(self.options.min_area <= share <= self.options.max_area and share > 0)


def overlap(one: Mask, other: Mask) -> float:
    """Intersection over union; 0 for two empty masks."""
    union = np.count_nonzero(one | other)
    return np.count_nonzero(one & other) / union if union else 0.0


def sampled(mask: Mask, side: int) -> Mask:
    """A mask [H, W] at the centres of L x L cells."""
    rows, columns = (
        ((np.arange(side) + 0.5) * length / side).astype(np.int64) for length in mask.shape
    )
    return np.asarray(mask[rows][:, columns])


def thumbnail(image: Rgb) -> NDArray[np.uint8]:
    """The brightness of a frame in 16 x 16 cells."""
    small = Image.fromarray(image).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    return np.asarray(small.convert("L"), np.uint8)


def stream_for(video: Video) -> Stream:
    """A stream that tracks as a video does."""
    shared = {entry.name: getattr(video.options, entry.name) for entry in fields(TrackOptions)}
    return Stream(video.model, StreamOptions(**{**shared, "length": video.length}))


def checked_range(video: Video, start: int, end: int | None) -> tuple[int, int | None]:
    """The first and the last frame of a run, if a video has them.

    Raises:
        PromptError: There is no such frame.
        OptionError: There is no frame between them.
    """
    length = video.source.length
    start, end = checked_frame(start, length), None if end is None else checked_frame(end, length)
    if end is not None and end < start:
        raise OptionError("there is no frame to track", got=f"from frame {start} to frame {end}")
    return start, end


def everything_of(
    video: Video,
    start: int,
    end: int | None,
    images: bool,
    progress: ShowProgress,
    options: Mapping[str, Any],
) -> Iterator[FrameResult]:
    """Everything in a video, with options by name; see `Video.everything`."""
    length, (start, end) = video.source.length, checked_range(video, start, end)
    discovery = Discovery(stream_for(video), read_discovery(options))
    results = video_everything(video, discovery, start=start, end=end, images=images)
    if progress is False:
        return results
    return counted(results, count_frames(length, [(start, end, False)]), "frames", progress)


def stream_everything(
    stream: Stream, source: Iterable[Any], options: Mapping[str, Any]
) -> Iterator[FrameResult]:
    """Everything on frames as they come, with options by name."""
    discovery = Discovery(stream, read_discovery(options))
    return (discovery.step(stream.read(frame)) for frame in source)


def video_everything(
    video: Video,
    discovery: Discovery,
    *,
    start: int = 0,
    end: int | None = None,
    images: bool = False,
) -> Generator[FrameResult, None, None]:
    """Everything on the frames of a video from `start` to `end`, included."""
    source, stream = video.source, discovery.stream
    last = last_frame(source.length, end, False)
    frames: Iterable[int] = count(start) if last is None else range(start, last + 1)
    with feeding(source, video.model, last=last, is_reverse=False) as feed:
        for index in frames:
            try:
                ready = feed.get(index)
            except EOFError:
                return
            if ready is None:
                continue
            stream.position = index
            result = discovery.step(ready.image, source.time(index), ready)
            yield replace(result, source=source, image=result.image if images else None)
