"""Tracking objects through frames as they come, for ever, in constant memory.

    stream = model.stream()
    stream.step(frame)
    stream.add(object=1, box=(100, 80, 220, 300))
    while True:
        result = stream.step(next_frame())

Results are those of `model.video` on the same frames, with one difference: a video dates object
pointers in units of its length where it has fewer than 16 frames. A stream that is told its
`length` does the same, to the last bit.

A frame is resized and encoded when an object is tracked or prompted on it: without objects a step
costs its decoding.

A stream keeps: the current frame, encoded if need be; for each object its prompted frames, unless
`max_prompted` limits them, and the seven masks and fifteen pointers that are still read.
"""

import os
import time as clock
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from samgraph.errors import ImageError, PromptError, VideoError
from samgraph.media.image.opening import ImageSource
from samgraph.media.image.reading import Rgb, read_image
from samgraph.models.family import Features, SegmentationModel
from samgraph.predict.options import refuses_unknown
from samgraph.predict.prompts import Prompt
from samgraph.predict.video.automatic import AutomaticObjects
from samgraph.predict.video.detections import apply_detections, read_detections
from samgraph.predict.video.feed import ReadyFrame, prepare
from samgraph.predict.video.latency import Latency, Stopwatch
from samgraph.predict.video.options import StreamOptions, read_options
from samgraph.predict.video.prompts import ObjectId, checked_object, video_prompt
from samgraph.predict.video.result import FrameResult, ObjectResult
from samgraph.predict.video.session import TrackingSession


class Stream(TrackingSession):
    """Frames one at a time, with objects to be tracked. Made by `model.stream`."""

    options: StreamOptions

    def __init__(self, model: SegmentationModel, options: StreamOptions) -> None:
        super().__init__(model, options, options.length, turns_back=False)
        self.automatic = AutomaticObjects()
        self._image: Rgb | None = None
        self._ready: ReadyFrame | None = None
        self._encoded: Features | None = None
        self._time: float | None = None
        self._watch = Stopwatch()

    def __repr__(self) -> str:
        return f"<stream: {self.position} frames so far, {self.objects_text}>"

    @property
    def next_frame(self) -> int:
        """The index of the next frame."""
        return self.position

    @property
    def latency(self) -> Latency:
        """How long steps have taken."""
        return self._watch.report

    @refuses_unknown
    def step(
        self,
        frame: ImageSource,
        time: float | None = None,
        *,
        boxes: ArrayLike | None = None,
        ids: Sequence[ObjectId | None] | None = None,
        scores: ArrayLike | None = None,
    ) -> FrameResult:
        """Track all objects onto the next frame: an array, a Pillow image, bytes or a path.

        Frames may differ in size. With `boxes`, those of a detector are matched to the objects,
        corrected by them where need be, and new objects begin (see `detections.py`).

        Args:
            frame: The frame.
            time: Its seconds, which are only passed on to the result.
            boxes: Detections on this frame, [K, 4]: left, top, right, bottom.
            ids: The object of each, where the detector knows it; None for any other.
            scores: A score for each; those below `min_score` begin no object.

        Raises:
            VideoError: The frame cannot be used; the stream stays as it was.
            PromptError: The detections make no sense; likewise.
        """
        started = clock.perf_counter()
        image = self.read(frame)
        if boxes is None and (ids is not None or scores is not None):
            raise PromptError("`ids` and `scores` are those of boxes", hint="pass `boxes=` as well")
        size_hw = (image.shape[0], image.shape[1])
        found = None if boxes is None else read_detections(size_hw, boxes, ids, scores)
        result = self.advance(image, time)
        if found is not None:
            result = apply_detections(self, result, found)
        self._watch.add(clock.perf_counter() - started)
        return result

    def read(self, frame: ImageSource) -> Rgb:
        """The pixels of the next frame, which nobody else has."""
        try:
            image = read_image(frame)
        except ImageError as error:
            raise VideoError(
                f"frame {self.position} cannot be used: {error.what}",
                got=error.got,
                expected=error.expected,
            ) from error
        # The owner of an array may use it again for the next frame.
        return image.copy() if isinstance(frame, np.ndarray) else image

    def advance(
        self, image: Rgb, time: float | None = None, ready: ReadyFrame | None = None
    ) -> FrameResult:
        """Track all objects onto the next frame, [H, W, 3]; `ready` where it is prepared."""
        self.settle()
        self._image, self._encoded, self._time, self._ready = image, None, time, ready
        index, self.position = self.position, self.position + 1
        moving = list(self.states.values())
        results: dict[ObjectId, ObjectResult] = {}
        for obj in moving:
            obj.enter(index, False)
        if moving:
            results = self._track(index, False, moving, self._features(index))
        for obj in moving:
            obj.forget_past(index)
        return self.result_of(results)

    @refuses_unknown
    def add(
        self,
        *,
        object: ObjectId,
        points: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        box: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        replace: bool = False,
    ) -> FrameResult:
        """Point at an object on the current frame, the one of the last `step`.

        Of an object that is tracked already, this corrects what was found. Arguments are those of
        `Video.add`; returns what all objects prompted on this frame look like.
        """
        name = checked_object(object)
        height, width = self._current.shape[:2]
        given = video_prompt((height, width), points=points, labels=labels, box=box, mask=mask)
        self.prompt(name, given, replace=replace)
        return self.result_of(self._prompted_on(self.position - 1))

    def prompt(self, name: ObjectId, given: Prompt, *, replace: bool = False) -> None:
        """Find an object on the current frame from a prompt that was checked."""
        height, width = self._current.shape[:2]
        self._prompt(name, self.position - 1, given, (height, width), replace=replace)

    def remove(self, object: ObjectId) -> None:
        """Forget an object."""
        super().remove(object)
        self.automatic.forget(object)

    def end(self, name: ObjectId) -> None:
        """Forget an automatic object and its number, which no other will have."""
        self.remove(name)
        self.numbers.pop(name, None)

    def clear(self, *, object: ObjectId) -> None:
        """Take back the prompts of an object on the current frame."""
        self._take_back(object, self.position - 1)

    def reset(self) -> None:
        """Forget all objects and frames."""
        self.states.clear()
        self.automatic.clear()
        self.position = 0
        self._image = self._encoded = self._ready = None

    def run(self, source: "Iterable[ImageSource] | int") -> Iterator[FrameResult]:
        """Step through all frames of an iterator, or of a camera given by its number.

        Prompts may be added between results. A camera needs the package `opencv-python`.
        """
        for frame in _frames_of(source):
            yield self.step(frame)

    def everything(
        self, source: "Iterable[ImageSource] | int", **options: Any
    ) -> Iterator[FrameResult]:
        """As `run`, with objects found by themselves; options are those of `Video.everything`.

        Ids last, and memory is constant. A stream that was saved goes on where it was.

        Raises:
            OptionError: There is no such option, or its value makes no sense.
        """
        from samgraph.predict.video.discovery import stream_everything

        return stream_everything(self, _frames_of(source), options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the session to a `.safetensors` file; `model.resume` reads it back."""
        from samgraph.predict.video.sessions import save_stream

        save_stream(self, path)

    @property
    def current_image(self) -> Rgb | None:
        """The frame of the last step."""
        return self._image

    @property
    def current_features(self) -> Features:
        """The frame of the last step, encoded if need be."""
        return self._features(self.position - 1)

    def restore(self, position: int, image: Rgb | None) -> None:
        """Be where a saved stream was; what it knew of objects is restored apart."""
        self.position, self._image = position, image

    @property
    def _current(self) -> Rgb:
        if self._image is None:
            raise PromptError(
                "there is no frame to point at", hint="give the first one to `step` before"
            )
        return self._image

    def _features(self, index: int) -> Features:
        """The current frame, encoded when it is first needed."""
        if index != self.position - 1:
            raise PromptError(f"frame {index} of the stream has passed")
        if self._encoded is None:
            ready = self._ready or prepare(self._current, self.model)
            self._encoded = ready.features or self.model.encode(ready.pixels[None])
        return self._encoded

    def _known_features(self, frame: int) -> Features | None:
        return None

    def result_of(self, results: dict[ObjectId, ObjectResult]) -> FrameResult:
        """The result of the current frame, with these objects."""
        image = self._current
        return FrameResult(
            self.position - 1,
            self._time,
            (image.shape[0], image.shape[1]),
            tuple(results.values()),
            self.display,
            image,
            self.model.buffers,
            numbers=self.numbers,
        )


def _frames_of(source: "Iterable[ImageSource] | int") -> Iterable[ImageSource]:
    if not isinstance(source, int):
        return source
    from samgraph.predict.video.camera import camera_frames

    return camera_frames(source)


def open_stream(model: SegmentationModel, **options: Any) -> Stream:
    """A stream of frames to track objects through; options are those of `StreamOptions`.

    `length` is the number of frames that will come, where that is known.

    Raises:
        OptionError: There is no such option, or its value makes no sense.
    """
    return Stream(model, read_options(StreamOptions, options, "stream"))
