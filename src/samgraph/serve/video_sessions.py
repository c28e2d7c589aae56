"""A video that clients prompt and track.

    upload                 the video
    document.json          objects, and prompts since the state was saved
    state-*.safetensors    the tracking state, as `video.save` writes it
    masks.jsonl            the masks, appended frame by frame

One lock guards the tracking state; a track holds it for a frame at a time, so clicks are answered
between frames; what is only read does not wait for it. A reply is sent after its result is on disk.
"""

import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from samgraph.errors import PromptError, SamgraphError
from samgraph.media.image.reading import Rgb
from samgraph.media.video.file import MAX_FRAME_PIXELS
from samgraph.media.video.frames import open_frames
from samgraph.media.video.source import FrameSource
from samgraph.predict.image.encoded import EncodedImage, encode_image
from samgraph.predict.video.policies.table import DEFAULT
from samgraph.predict.video.result import FrameResult
from samgraph.predict.video.sessions import restore_video
from samgraph.predict.video.video import Video, open_video
from samgraph.serve.events import Channel
from samgraph.serve.gate import Turns
from samgraph.serve.image_sessions import Refinable, mask_of, predict
from samgraph.serve.mask_file import Forget, MaskFile, MaskLine
from samgraph.serve.replies import RequestError, message_of
from samgraph.serve.schema import (
    FrameReply,
    Mask,
    ObjectOnFrame,
    PredictBody,
    PredictReply,
    TimelineReply,
    VideoObject,
    VideoPromptBody,
)
from samgraph.serve.store import UPLOAD
from samgraph.serve.timeline import timeline
from samgraph.serve.video_document import NamedObject, Operation, read_document

MASKS: Final = "masks.jsonl"
# Encoded frames kept for hover previews.
MOST_HOVERED = 4
# Encoded frames kept for further prompts.
CACHE_MB = 64
# Operations after which the tracking state is saved: they would have to be done again.
MOST_PENDING = 8


class Stoppable(Protocol):
    """A thread that can be stopped."""

    @property
    def is_running(self) -> bool:
        """Whether it runs; not so any more when its end is told."""

    def stop(self) -> None:
        """Ask it to stop."""

    def join(self) -> None:
        """Wait for its end."""


def open_upload(core: Any, path: Path, max_pixels: int | None, policy: str = DEFAULT) -> Video:
    """The video of an upload; frames that cannot be decoded are skipped."""
    most = MAX_FRAME_PIXELS if max_pixels is None else min(max_pixels, MAX_FRAME_PIXELS)
    return open_video(
        core, path, on_damage="skip", max_pixels=most, cache_mb=CACHE_MB, policy=policy
    )


class VideoSession:
    """The state of one video. Safe to use from several threads."""

    def __init__(
        self,
        video: Video,
        folder: Path,
        turns: Turns,
        channel: Channel | None = None,
        max_objects: int = 255,
    ) -> None:
        self.video, self.folder, self.turns = video, folder, turns
        self.lock = threading.RLock()
        self.channel = channel or Channel()
        self.document = read_document(folder)
        self.masks = MaskFile(folder / MASKS, video.size_hw)
        self._frames: FrameSource | None = None
        self._frames_lock = threading.Lock()
        self._hovered: OrderedDict[int, tuple[EncodedImage, Refinable]] = OrderedDict()
        self._max_objects = max_objects
        self.track: Stoppable | None = None
        try:
            self._restore()
        except BaseException:
            self.masks.close()
            video.close()
            raise

    @property
    def is_busy(self) -> bool:
        """Whether a track runs."""
        return self.track is not None and self.track.is_running

    @property
    def length(self) -> int | None:
        """The number of frames."""
        return self.video.source.length

    def objects(self) -> list[VideoObject]:
        """The objects with the frames they are prompted on."""
        return [
            VideoObject(obj.id, obj.name, obj.color, self._prompted(obj.id))
            for obj in list(self.document.objects)
        ]

    def add_object(self, name: str | None, color: str | None) -> VideoObject:
        """A new object without prompts."""
        with self.turns.click(), self.lock:
            obj = self._new_object(self.document.next_id)
            obj.name, obj.color = name, color
            self.document.save(self.folder)
            return VideoObject(obj.id, obj.name, obj.color, [])

    def rename(self, number: int, name: str | None, color: str | None) -> VideoObject:
        """Another name or colour, where they are given."""
        with self.turns.click(), self.lock:
            obj = self._object(number)
            obj.name = obj.name if name is None else name
            obj.color = obj.color if color is None else color
            self.document.save(self.folder)
            return VideoObject(obj.id, obj.name, obj.color, self._prompted(number))

    def prompt(self, body: VideoPromptBody) -> FrameReply:
        """Prompt an object on a frame, replacing its prompts there; returns the masks there."""
        operation = Operation(
            "prompt", body.object, body.frame, body.points, body.labels, body.box, body.mask
        )
        with self.turns.click(), self.lock:
            is_new = self.document.find(body.object) is None
            if is_new and len(self.document.objects) >= self._max_objects:
                raise PromptError("there are too many objects", expected=str(self._max_objects))
            result = self._apply(operation)
            obj = self._new_object(body.object) if is_new else self._object(body.object)
            obj.version += 1
            if result is not None:
                self.masks.append(self.lines(result))
            self._note(operation)
            return self.frame(body.frame)

    def clear(self, number: int, frame: int) -> None:
        """Remove the prompts of an object on a frame; without any, its masks are removed.

        Raises:
            RequestError: There is no such prompt.
        """
        with self.turns.click(), self.lock:
            obj = self._object(number)
            if frame not in self._prompted(number):
                raise RequestError(404, f"object {number} has no prompt on frame {frame}")
            operation = Operation("clear", number, frame)
            self._apply(operation)
            obj.version += 1
            self.masks.append([Forget(number, frame if self._prompted(number) else None)])
            self._note(operation)

    def remove(self, number: int) -> None:
        """Remove an object and its masks."""
        with self.turns.click(), self.lock:
            self.document.objects.remove(self._object(number))
            operation = Operation("remove", number)
            self._apply(operation)
            self.masks.append([Forget(number)])
            self._note(operation)

    def frame(self, index: int) -> FrameReply:
        """The objects that are known on a frame."""
        return FrameReply(index, [self.shown(line) for line in self.masks.on(index)])

    def frames(self, first: int, last: int) -> list[FrameReply]:
        """The frames of a range on which anything is known."""
        found = (self.frame(index) for index in range(first, last + 1))
        return [reply for reply in found if reply.objects]

    def timeline(self) -> TimelineReply:
        """Where objects are, and which frames to review."""
        objects = list(self.document.objects)
        prompts = {obj.id: self._prompted(obj.id) for obj in objects}
        versions = {obj.id: obj.version for obj in objects}
        with self.masks.lock:
            return timeline(self.length, self.masks.lanes, prompts, versions)

    def hover(self, index: int, body: PredictBody) -> PredictReply:
        """The masks of a prompt on a frame as on an image: no memory, nothing is kept."""
        with self.turns.click():
            image, refinable = self._hovered_image(index)
            return predict(image, body, refinable)

    def pixels(self, index: int) -> Rgb:
        """A frame; read by another decoder than the track's, so that neither disturbs the other."""
        with self._frames_lock:
            if self._frames is None:
                self._frames = open_frames(self.folder / UPLOAD, on_damage="skip", cache_frames=8)
            source = self._frames
        return source.frame(index)

    def lines(self, result: FrameResult) -> list[MaskLine]:
        """A result as lines of the file of masks."""
        boxes, areas = result.boxes.tolist(), result.areas.tolist()
        found = []
        for index, (name, rle) in enumerate(zip(result.objects, result.rles, strict=True)):
            obj = self.document.find(int(name))
            found.append(
                MaskLine(
                    frame=result.index,
                    object=int(name),
                    version=0 if obj is None else obj.version,
                    prompted=bool(result.prompted[index]),
                    present=bool(result.present[index]),
                    score=round(float(result.scores[index]), 4),
                    object_score=round(float(result.object_scores[index]), 4),
                    area=areas[index],
                    box=tuple(boxes[index]),
                    counts=rle["counts"].decode("ascii"),
                )
            )
        return found

    def shown(self, line: MaskLine) -> ObjectOnFrame:
        """A line as it is sent."""
        obj = self.document.find(line.object)
        is_stale = obj is not None and obj.version != line.version
        height, width = self.video.size_hw
        return ObjectOnFrame(
            line.object,
            Mask((height, width), line.counts),
            line.score,
            line.present,
            line.box,
            line.area,
            line.prompted,
            is_stale,
        )

    def save(self) -> None:
        """Write the tracking state; the document then needs no operations."""
        with self.lock:
            earlier = self.document.state
            number = int(earlier.split("-")[1].split(".")[0]) + 1 if earlier else 1
            name = f"state-{number}.safetensors"
            self.video.save(self.folder / name)
            self.document.state, self.document.pending = name, []
            self.document.save(self.folder)
            if earlier:
                with suppress(OSError):
                    (self.folder / earlier).unlink()

    def close(self) -> None:
        """End a track after its frame, save, and close files."""
        track = self.track
        if track is not None:
            track.stop()
            track.join()
        with self.lock, self._frames_lock:
            if self.document.pending:
                self.save()
            self.masks.close()
            self.video.close()
            if self._frames is not None:
                self._frames.close()
            self._hovered.clear()

    def _restore(self) -> None:
        """The tracking state as it was saved, and what was prompted since."""
        with self.turns.click():
            if self.document.state is not None:
                restore_video(self.video, self.folder / self.document.state)
            for operation in self.document.pending:
                self._apply(operation)
        for name in self.video.objects:
            if not isinstance(name, int) or not 1 <= name < 2**31:
                raise PromptError("objects of a session are numbered from 1", got=f"`{name}`")
            if self.document.find(name) is None:
                self._new_object(name)

    def _apply(self, operation: Operation) -> FrameResult | None:
        """Apply an operation to the tracking state."""
        video, number = self.video, operation.object
        if operation.kind == "prompt":
            mask = None
            if operation.mask is not None:
                mask = mask_of(operation.mask, video.size_hw)
            return video.add(
                frame=operation.frame,
                object=number,
                points=operation.points or None,
                labels=operation.labels or None,
                box=operation.box,
                mask=mask,
                replace=True,
            )
        if number in video.objects:
            if operation.kind == "clear":
                video.clear(frame=operation.frame, object=number)
            else:
                video.remove(number)
        return None

    def _note(self, operation: Operation) -> None:
        """Write an operation to disk."""
        self.document.pending.append(operation)
        if len(self.document.pending) >= MOST_PENDING:
            self.save()
        else:
            self.document.save(self.folder)

    def _prompted(self, number: int) -> list[int]:
        obj = self.video.states.get(number)
        return [] if obj is None else sorted(obj.prompts)

    def _object(self, number: int) -> NamedObject:
        found = self.document.find(number)
        if found is None:
            raise RequestError(404, f"there is no object {number}")
        return found

    def _new_object(self, number: int) -> NamedObject:
        if len(self.document.objects) >= self._max_objects:
            raise PromptError("there are too many objects", expected=str(self._max_objects))
        if number >= 2**31:
            raise PromptError("no number is left for an object", hint="give it a smaller one")
        obj = NamedObject(number)
        self.document.objects.append(obj)
        self.document.next_id = max(self.document.next_id, number + 1)
        return obj

    def _hovered_image(self, index: int) -> tuple[EncodedImage, Refinable]:
        with self._frames_lock:
            found = self._hovered.get(index)
            if found is not None:
                self._hovered.move_to_end(index)
                return found
        pixels = np.ascontiguousarray(self.pixels(index))
        made = encode_image(self.video.model, pixels, name=f"frame {index}"), Refinable(8)
        with self._frames_lock:
            self._hovered[index] = made
            while len(self._hovered) > MOST_HOVERED:
                self._hovered.popitem(last=False)
        return made


def checked_index(index: int, length: int | None) -> int:
    """A frame that exists.

    Raises:
        RequestError: It does not.
    """
    if length is not None and index >= length:
        raise RequestError(404, f"there is no frame {index}", hint=f"the last is {length - 1}")
    return index


def message(error: SamgraphError) -> dict[str, str | None]:
    """An error as an event."""
    return {"message": message_of(error), "hint": error.hint}
