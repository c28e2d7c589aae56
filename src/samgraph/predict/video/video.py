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
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import ArrayLike

from samgraph.errors import OptionError, PromptError
from samgraph.formats.pictures import OPACITY
from samgraph.formats.table import WriteOptions
from samgraph.media.image.reading import Rgb
from samgraph.media.video.frames import FrameSource, open_frames
from samgraph.media.video.source import Damage
from samgraph.models.family import Features, SegmentationModel
from samgraph.predict.options import refuses_unknown
from samgraph.predict.video.feed import MEGABYTE, EncodedFrames, FrameFeed, feeding
from samgraph.predict.video.objects import TrackedObject
from samgraph.predict.video.options import VideoOptions, read_options
from samgraph.predict.video.prompts import ObjectId, checked_frame, checked_object, video_prompt
from samgraph.predict.video.ranges import count_frames, last_frame
from samgraph.predict.video.result import FrameResult, ObjectResult
from samgraph.predict.video.session import TrackingSession
from samgraph.progress import ShowProgress, counted
from samgraph.untrusted.arguments import flag


class Video(TrackingSession):
    """A video with objects to be tracked, on frames of `size_hw`. Made by `model.video`."""

    def __init__(
        self, source: FrameSource, model: SegmentationModel, options: VideoOptions
    ) -> None:
        length = source.length if options.length is None else options.length
        super().__init__(model, options, length, archive_bytes=options.archive_mb * MEGABYTE)
        self.source, self.size_hw, self.is_going_back = source, source.size_hw, False
        self.encoded = EncodedFrames(source, model, options.cache_mb)
        self.origin: str | None = None
        self._results_bytes = options.results_mb * MEGABYTE

    def __repr__(self) -> str:
        frames = "frames" if self.length is None else f"{self.length} frames"
        return f"<video {self.source.name}: {frames}, {self.objects_text}>"

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
    def damage(self) -> Damage:
        """What is wrong with the video, as far as it has been read."""
        return self.source.damage

    @refuses_unknown
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
        given = video_prompt(self.size_hw, points=points, labels=labels, box=box, mask=mask)
        self._prompt(name, frame, given, self.size_hw, replace=flag("replace", replace))
        return self._result(frame, self._prompted_on(frame))

    def clear(self, *, frame: int | None = None, object: ObjectId | None = None) -> None:
        """Take back the prompts on a frame, of an object, or of an object on a frame.

        An object that has no prompt left is forgotten.
        """
        if frame is None and object is None:
            raise OptionError("say what to clear", expected="frame, object or both; else `reset()`")
        indices = None if frame is None else [self._checked_frame(frame)]
        for name in self.objects if object is None else [object]:
            prompts = self.state(name).prompts
            for index in list(prompts) if indices is None else indices:
                self._take_back(name, index)

    def reset(self) -> None:
        """Forget all objects; encoded frames stay."""
        self.states.clear()
        self.position, self.is_going_back = 0, False

    @refuses_unknown
    def track(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        reverse: bool = False,
        both: bool = False,
        logits: bool = False,
        images: bool = False,
        progress: ShowProgress = False,
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
            progress: True to print frames, rate and time left; or a function of the frames done
                and of all frames (0 where that is not known).

        Raises:
            PromptError: There is no object, or no such frame.
            OptionError: There is no frame between `start` and `end`.
        """
        if not self.objects:
            raise PromptError(
                "there is nothing to track", hint="video.add(frame=0, object=1, points=[(x, y)])"
            )
        reverse, both = flag("reverse", reverse), flag("both", both)
        logits, images = flag("logits", logits), flag("images", images)
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
        results = (result for run in runs for result in self._run(*run, logits, images))
        if len(runs) == 1:
            results = self._run(*runs[0], logits, images)
        if progress is False:
            return results
        return counted(results, count_frames(self.source.length, runs), "frames", progress)

    @refuses_unknown
    def export(
        self,
        path: str | os.PathLike[str],
        format: str | Sequence[str] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        reverse: bool = False,
        both: bool = False,
        progress: ShowProgress = False,
        label: str | None = None,
        tolerance: float = 0.0,
        opacity: float = OPACITY,
    ) -> list[Path]:
        """Track and write: a video with the masks drawn in, or masks and annotations.

        A path that ends in `.mp4`, `.mov` or `.mkv` is a video; `.json` is COCO, `.xml` is CVAT.
        Any other format by its name (`samgraph formats` lists them), into a folder. Frames of a
        folder of images keep their names.

        Args:
            path: A file or a folder, which is made.
            format: What to write, where the suffix does not imply it; several have a folder each.
            start: As of `track`, and so are `end`, `reverse`, `both` and `progress`.
            end: The last frame, included.
            reverse: Track towards frame 0; files are in the order of frames all the same.
            both: Track forward from `start`, then back from it.
            progress: True to print it.
            label: What the objects are called in annotations, instead of their own names.
            tolerance: How far, in pixels, polygons may be from the mask's edge.
            opacity: Of the tint in a video, 0 to 1.

        Returns:
            The files written.

        Raises:
            OutputError: The files cannot be written, or the path does not fit the format.
        """
        from samgraph.predict.video.export import export_video

        options = WriteOptions(label=label, tolerance=tolerance, opacity=opacity)
        results = self.track(start=start, end=end, reverse=reverse, both=both, progress=progress)
        return export_video(self, path, format, results, options, is_ordered=not (reverse or both))

    def everything(
        self,
        *,
        start: int = 0,
        end: int | None = None,
        images: bool = False,
        progress: ShowProgress = False,
        **options: Any,
    ) -> Iterator[FrameResult]:
        """Find and track everything, a frame at a time and forward; nothing is prompted.

        Ids count from 1 and last. Objects are those of the results alone, not of this video; memory
        is that of a stream. Options: those of `DiscoveryOptions` (`every`, `change`, `max_objects`,
        `end_after`, ...) and of automatic masks (`points_per_side`, ...); others as of `track`.

        Raises:
            OptionError: There is no such option, or its value makes no sense.
        """
        from samgraph.predict.video.discovery import everything_of

        return everything_of(self, start, end, flag("images", images), progress, options)

    def known(self, frame: int) -> FrameResult:
        """What is known of a frame without tracking: kept results and prompts, where there are."""
        frame = self._checked_frame(frame)
        results: dict[ObjectId, ObjectResult] = {}
        for way in (True, False):
            found, _ = self._known_on(frame, way, False)
            results |= found
        ordered = {name: results[name] for name in self.states if name in results}
        return self._result(frame, ordered)

    def _repr_html_(self) -> str | None:
        """What a notebook shows: a player of the video with the masks known so far."""
        from samgraph.predict.video.player import player_html

        return player_html(self)

    def first_frame(self, reverse: bool = False) -> int:
        """Where `track` starts: at the first prompted frame, or the last where the way is back."""
        frames = [frame for obj in self.states.values() for frame in obj.answers]
        if reverse:
            known = self.source.length
            return max(frames) if frames else (known or 1) - 1
        return min(frames, default=0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the session to a `.safetensors` file; `model.resume` reads it back."""
        from samgraph.predict.video.sessions import save_video

        save_video(self, path)

    def close(self) -> None:
        """Let go of the source."""
        self.source.close()

    def _run(
        self, begin: int, end: int | None, is_reverse: bool, logits: bool, images: bool
    ) -> Generator[FrameResult, None, None]:
        """One direction, frame by frame."""
        self.position, self.is_going_back = begin, is_reverse
        last = last_frame(self.source.length, end, is_reverse)
        back = -1 if is_reverse else 1
        frames: Iterable[int] = count(begin) if last is None else range(begin, last + back, back)
        with feeding(self.source, self.model, last=last, is_reverse=is_reverse) as feed:
            for frame in frames:
                if not self.states:
                    return
                self.settle()
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
        results, moving = self._known_on(frame, is_reverse, logits)
        features = self.encoded.get(frame) if moving else None
        image = None
        if images or (moving and features is None):
            ready = feed.get(frame)
            if ready is None:
                for obj in self.states.values():
                    obj.enter(frame, is_reverse, is_missing=True)
                return None
            image = ready.image if images else None
            if moving and features is None:
                features = self.encoded.put(frame, ready)
        runs = {}
        for name, obj in self.states.items():
            runs[name] = obj.enter(frame, is_reverse)
        if features is not None:
            results |= self._track(frame, is_reverse, moving, features)
        share = self._results_bytes / len(self.states) if self.display.overlaps else 0
        ordered = {}
        for name, run in runs.items():
            ordered[name] = result = results[name]
            if share and not result.is_prompted:
                run.keep(frame, result, share)
        return self._result(frame, ordered, image)

    def _known_on(
        self, frame: int, is_reverse: bool, logits: bool
    ) -> tuple[dict[ObjectId, ObjectResult], list[TrackedObject]]:
        """What need not be computed, and the objects that must be."""
        results, moving = {}, []
        for name, obj in self.states.items():
            run = obj.runs.get(is_reverse) if self.display.overlaps else None
            kept = None if run is None else run.kept.get(frame)
            if frame in obj.answers:
                results[name] = ObjectResult.of(name, obj.answers[frame], is_prompted=True)
            elif kept is None or (logits and kept.logits is None):
                moving.append(obj)
            else:
                results[name] = kept
        return results, moving

    def _features(self, frame: int) -> Features:
        return self.encoded(frame)

    def _known_features(self, frame: int) -> Features | None:
        return self.encoded.get(frame)

    def _result(
        self, frame: int, results: dict[ObjectId, ObjectResult], image: Rgb | None = None
    ) -> FrameResult:
        return FrameResult(
            frame,
            self.source.time(frame),
            self.size_hw,
            tuple(results.values()),
            self.display,
            image,
            self.model.buffers,
            self.numbers,
            self.source,
        )

    def _checked_frame(self, frame: int) -> int:
        return checked_frame(frame, self.source.length)


def open_video(model: SegmentationModel, source: Any, **options: Any) -> Video:
    """A video to track objects through; options are those of `VideoOptions`.

    Args:
        model: The model.
        source: A video file, a folder of images, a list, an array [F, H, W, 3], or an iterator.
        **options: Fields of `VideoOptions`.

    Raises:
        VideoError: The source cannot be read.
        OptionError: There is no such option, or its value makes no sense.
    """
    chosen = read_options(VideoOptions, options, "video")
    chosen.policy_for(model)  # whose options are checked before the source is opened
    frames = open_frames(
        source,
        on_damage=chosen.on_damage,
        cache_frames=chosen.cache_frames,
        max_pixels=chosen.max_pixels,
    )
    video = Video(frames, model, chosen)
    if isinstance(source, str | os.PathLike):
        video.origin = os.path.abspath(source)
    return video
