"""Tracking objects through a video.

    video = model.video("clip.mp4")
    video.add(frame=0, object=1, points=[(210, 350)])
    for frame in video.track():
        frame.masks, frame.boxes, frame.present

Prompts may come at any time, also while tracking: they count from the next frame on. A prompted
frame is remembered for ever and never tracked over. Every frame reads all prompted frames, those
after it too, and the tracked ones before it; so a prompt changes an object's whole track, and
`track` runs that object again, while others are shown from what is kept.

In memory, whatever the length: per object its prompted frames and the tracked ones still read (4 MB
at 1024 pixels); encoded frames, results and older memories up to the sizes set; one flag per frame.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from samgraph.errors import OptionError, PromptError
from samgraph.media.image.reading import Rgb
from samgraph.media.video.frames import FrameSource, open_frames
from samgraph.media.video.source import Damage, OnDamage
from samgraph.models.sam2.model import Sam2Model
from samgraph.predict.video.following import Follower
from samgraph.predict.video.frame_feed import MEGABYTE, EncodedFrames, FrameFeed, feeding
from samgraph.predict.video.memory_bank import MemoryPolicy, MemoryPrecision, ReferencePolicy
from samgraph.predict.video.object_prompts import (
    ObjectId,
    checked_frame,
    checked_object,
    checked_prompt,
)
from samgraph.predict.video.result import DisplayOptions, FrameResult, ObjectResult
from samgraph.predict.video.tracked_object import TrackedObject, encoded
from samgraph.predict.video.tracker import Tracker

if TYPE_CHECKING:
    from samgraph.predict.video.stream import Stream


class Video:
    """A video with objects to be tracked. Made by `model.video`."""

    def __init__(
        self,
        source: FrameSource,
        tracker: Tracker,
        policy: MemoryPolicy,
        display: DisplayOptions,
        *,
        length: int | None = None,
        cache_mb: float = 128,
        results_mb: float = 16,
        archive_mb: float = 24,
    ) -> None:
        if min(results_mb, archive_mb) < 0:
            raise OptionError("a store has no negative size", got=f"{results_mb}, {archive_mb} MB")
        self.source, self.display = source, display
        self.encoded = EncodedFrames(source, tracker, cache_mb)
        self.follower = Follower(
            tracker,
            policy,
            source.length if length is None else length,
            features=self.encoded,
            peek=self.encoded.get,
            archive_bytes=archive_mb * MEGABYTE,
        )
        self.position, self.is_going_back = 0, False
        self.origin: str | None = None
        self._results_bytes = results_mb * MEGABYTE

    def __repr__(self) -> str:
        frames = "frames" if self.length is None else f"{self.length} frames"
        return f"<video {self.source.name}: {frames}, {len(self.objects)} objects>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The ids of the objects, in the order they were added."""
        return tuple(self.follower.objects)

    @property
    def length(self) -> int | None:
        """The number of frames, as far as it was known at the start."""
        return self.follower.length

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the frames."""
        return self.source.size_hw

    @property
    def damage(self) -> Damage:
        """What is wrong with the video, as far as it has been read."""
        return self.source.damage

    def add(
        self,
        *,
        frame: int,
        object: ObjectId,
        points: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        box: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        replace: bool = False,
    ) -> FrameResult:
        """Point at an object on a frame; returns what all objects prompted there look like.

        A frame that has not been tracked stands alone, as an image does. On a tracked one the
        prompt corrects what tracking found there. Clicks add up, unless they `replace` what was
        given for this object on this frame.

        Args:
            frame: The number of the frame.
            object: The object's id, a number or a text; a new one makes a new object.
            points: Pairs (x, y) in pixels of the frame.
            labels: For each point 1 (inside) or 0 (outside); all inside if omitted.
            box: Left, top, right, bottom.
            mask: bool [H, W], taken as the answer.
            replace: Start over on this frame.

        Raises:
            PromptError: The prompt makes no sense on this video.
        """
        name, frame = checked_object(object), self._checked_frame(frame)
        given = checked_prompt(self.size_hw, points=points, labels=labels, box=box, mask=mask)
        self.follower.prompt(name, frame, given, self.size_hw, replace=replace)
        return self._result(frame, self.follower.answers_on(frame))

    def remove(self, object: ObjectId) -> None:
        """Forget an object."""
        self.follower.remove(object)

    def clear(self, *, frame: int | None = None, object: ObjectId | None = None) -> None:
        """Take back the prompts on a frame, of an object, or of an object on a frame.

        An object that has no prompt left is forgotten.
        """
        if frame is None and object is None:
            raise OptionError("say what to clear", expected="frame, object or both; else `reset()`")
        places = None if frame is None else [self._checked_frame(frame)]
        for name in self.objects if object is None else [object]:
            prompts = self.follower.known(name).prompts
            for place in list(prompts) if places is None else places:
                self.follower.take_back(name, place)

    def reset(self) -> None:
        """Forget all objects; encoded frames stay."""
        self.follower.objects.clear()
        self.position, self.is_going_back = 0, False

    def track(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        reverse: bool = False,
        both: bool = False,
        logits: bool = False,
        images: bool = False,
    ) -> Iterator[FrameResult]:
        """Follow all objects, a frame at a time, until the end or until there is no object left.

        `position` is then the frame after the last one tracked: a `start` to go on from.

        Args:
            start: The first frame; the first prompted one if omitted (the last, in reverse).
            end: The last frame, included; that of the video if omitted (the first, in reverse).
            reverse: Go towards frame 0.
            both: Go forward from `start` to `end`, then back from `start` to frame 0.
            logits: Have logits in every result, also where an earlier one could be shown.
            images: Have the frame itself in every result.

        Raises:
            PromptError: There is no object, or no such frame.
            OptionError: There is no frame between `start` and `end`.
        """
        if not self.objects:
            raise PromptError(
                "there is nothing to track", hint="video.add(frame=0, object=1, points=[(x, y)])"
            )
        if both and reverse:
            raise OptionError("`both` has both directions", got="reverse=True as well")
        last = None if end is None else self._checked_frame(end)
        begin = self.first_frame(reverse) if start is None else self._checked_frame(start)
        if last is not None and (last > begin if reverse else last < begin):
            raise OptionError(
                "there is no frame to track", got=f"from frame {begin} to frame {last}"
            )
        runs = [(begin, last, reverse)]
        if both and begin > 0:
            runs.append((begin - 1, 0, True))
        return (
            result
            for first, final, is_reverse in runs
            for result in self._run(first, final, is_reverse, logits, images)
        )

    def first_frame(self, reverse: bool = False) -> int:
        """Where `track` starts: at the first prompted frame, or the last where the way is back."""
        ones = self.follower.objects.values()
        frames = [frame for one in ones for frame in one.answers]
        if reverse:
            known = self.source.length
            return max(frames) if frames else (known or 1) - 1
        return min(frames, default=0)

    def remember(self, other: "Video | Stream", objects: Iterable[ObjectId] | None = None) -> None:
        """Look for the objects of another video or stream in this one.

        What is remembered of its prompted frames is taken over, as frames before frame 0.
        """
        from samgraph.predict.video.carrying import carry

        carry(other.follower, self.follower, objects)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the session to a `.safetensors` file; `model.resume` reads it back."""
        from samgraph.predict.video.sessions import save_video

        save_video(self, path)

    def close(self) -> None:
        """Let go of the source."""
        self.source.close()

    def _run(
        self, begin: int, end: int | None, is_reverse: bool, logits: bool, images: bool
    ) -> Iterator[FrameResult]:
        """One direction, frame by frame."""
        self.position, self.is_going_back = begin, is_reverse
        last = self._last(end, is_reverse)
        back = -1 if is_reverse else 1
        frames: Iterable[int] = count(begin) if last is None else range(begin, last + back, back)
        size = self.follower.tracker.config.image_size
        with feeding(self.source, size, last=last, is_reverse=is_reverse) as feed:
            for frame in frames:
                if not self.objects:
                    return
                self.follower.settle()
                try:
                    result = self._step(frame, is_reverse, feed, logits, images)
                except EOFError:
                    return
                self.position = frame + back
                if result is not None:
                    yield result

    def _step(
        self, frame: int, is_reverse: bool, feed: FrameFeed, logits: bool, images: bool
    ) -> FrameResult | None:
        """All objects on one frame; None where the frame is missing."""
        seen, moving = self._known_on(frame, is_reverse, logits)
        features = self.encoded.get(frame) if moving else None
        image = None
        if images or (moving and features is None):
            ready = feed.get(frame)
            if ready is None:
                self.follower.enter(frame, is_reverse, is_missing=True)
                return None
            image = ready.image
            if moving and features is None:
                features = self.encoded.put(frame, ready)
        if features is not None:
            seen |= self.follower.follow(frame, is_reverse, moving, features)
        self.follower.enter(frame, is_reverse)
        ordered = {name: seen[name] for name in self.objects}
        result = self._result(frame, ordered, image if images else None)
        self._keep(result, is_reverse)
        return result

    def _known_on(
        self, frame: int, is_reverse: bool, logits: bool
    ) -> tuple[dict[ObjectId, ObjectResult], list[TrackedObject]]:
        """What need not be computed, and the objects that must be."""
        seen = self.follower.answers_on(frame)
        moving = []
        for name, one in self.follower.objects.items():
            if name in seen:
                continue
            shown = None if logits or not self.display.overlaps else one.shown(frame, is_reverse)
            if shown is None:
                moving.append(one)
            else:
                seen[name] = shown
        return seen, moving

    def _keep(self, result: FrameResult, is_reverse: bool) -> None:
        """Keep the encoded masks, to show them again."""
        most = self._results_bytes / len(self.objects)
        if not most or not self.display.overlaps:
            return
        for one, rle in zip(result.object_results, result.rles, strict=True):
            if not one.is_prompted:
                kept = encoded(one, rle)
                self.follower.objects[one.name].keep_shown(result.index, is_reverse, kept, most)

    def _result(
        self, frame: int, seen: dict[ObjectId, ObjectResult], image: Rgb | None = None
    ) -> FrameResult:
        time = self.source.time(frame)
        return FrameResult(frame, time, self.size_hw, tuple(seen.values()), self.display, image)

    def _last(self, end: int | None, is_reverse: bool) -> int | None:
        """The last frame of a run, as far as that is known."""
        if is_reverse:
            return end or 0
        known = self.source.length
        if known is None:
            return end
        return known - 1 if end is None else min(end, known - 1)

    def _checked_frame(self, frame: int) -> int:
        return checked_frame(frame, self.source.length)


def open_video(
    core: Sam2Model,
    source: Any,
    *,
    memory_precision: MemoryPrecision = "bf16",
    policy: MemoryPolicy | None = None,
    max_prompted: int | None = None,
    stride: int = 1,
    fill_holes: int = 0,
    overlaps: bool = True,
    mask_threshold: float = 0.0,
    score_threshold: float = 0.0,
    length: int | None = None,
    on_damage: OnDamage = "error",
    objects_at_once: int = 4,
    cache_mb: float = 128,
    results_mb: float = 16,
    archive_mb: float = 24,
    cache_frames: int | None = None,
    max_pixels: int | None = None,
) -> Video:
    """A video to track objects through.

    Args:
        core: The model.
        source: A video file, a folder of images, a list, an array [F, H, W, 3], or an iterator.
        memory_precision: How mask memory is stored: "bf16", as the reference does, or "fp32".
        policy: What frames read of memory; that of SAM 2 if omitted.
        max_prompted: The most prompted frames a frame reads, the nearest; all if omitted.
        stride: Remember every n-th frame, and the last.
        fill_holes: The largest hole to fill, in pixels of the low-resolution mask.
        overlaps: Whether a pixel may belong to several objects.
        mask_threshold: The logit above which a pixel belongs to an object.
        score_threshold: The object score above which an object counts as present.
        length: The number of frames, where the source does not know it: pointers are dated with
            min(length, 16) frames as the unit; without it, 16.
        on_damage: Raise an error at a frame that cannot be read, or skip it.
        objects_at_once: The most objects in one run of a graph.
        cache_mb: Megabytes of encoded frames to keep (16 a frame at 1024 pixels).
        results_mb: Megabytes of results to keep, to show them again.
        archive_mb: Megabytes of older memories, so that corrections far back are quick.
        cache_frames: Decoded frames to keep; see `samgraph.media.video.frames.open_frames`.
        max_pixels: The most pixels a frame may have.
    """
    tracker = Tracker(
        core,
        memory_precision=memory_precision,
        fill_holes=fill_holes,
        objects_at_once=objects_at_once,
    )
    chosen = policy or ReferencePolicy.of(core.config, max_prompted=max_prompted, stride=stride)
    frames = open_frames(
        source, on_damage=on_damage, cache_frames=cache_frames, max_pixels=max_pixels
    )
    video = Video(
        frames,
        tracker,
        chosen,
        DisplayOptions(mask_threshold, score_threshold, overlaps),
        length=length,
        cache_mb=cache_mb,
        results_mb=results_mb,
        archive_mb=archive_mb,
    )
    if isinstance(source, str | os.PathLike):
        video.origin = os.path.abspath(source)
    return video
