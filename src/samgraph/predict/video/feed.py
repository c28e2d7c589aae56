"""Frames on their way into the model: prepared ahead by a thread, and kept once encoded."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from samgraph.engines import Buffer
from samgraph.errors import DeviceMemoryError, OptionError
from samgraph.media.image.preprocess import resize_video_frame
from samgraph.media.image.reading import Rgb
from samgraph.media.video.frames import FrameSource
from samgraph.media.video.prefetch import AHEAD, Prefetcher
from samgraph.models.family import Features, SegmentationModel

MEGABYTE: Final = 1 << 20
MOST_FRAMES: Final = 256
PIXEL_BYTES: Final = 12  # three channels in float32
# Bytes of frames that wait for the model on the host, which takes far longer than reading them.
MOST_AHEAD: Final = 16 * MEGABYTE
# A gap of so many frames is read through; for a larger one, reading starts anew behind it.
GAP: Final = 8


@dataclass(frozen=True, slots=True)
class ReadyFrame:
    """A frame as it was read, [H, W, 3], and as the model wants it, [3, S, S], or encoded."""

    image: Rgb
    pixels: Buffer
    features: Features | None = None


class FrameFeed:
    """Ready frames of a source, asked for in one direction."""

    def __init__(
        self, source: FrameSource, model: SegmentationModel, *, last: int | None, is_reverse: bool
    ) -> None:
        self._source, self._model = source, model
        self._last, self._is_reverse = last, is_reverse
        self._prefetcher: Prefetcher[ReadyFrame] | None = None
        self._held: tuple[int, ReadyFrame] | None = None
        self._next = 0

    def get(self, index: int) -> ReadyFrame | None:
        """The frame, or None where it is missing and damage is skipped.

        Raises:
            EOFError: The source, whose length was not known, ended before this frame.
        """
        back = -1 if self._is_reverse else 1
        ahead = (index - self._next) * back
        if self._prefetcher is None or ahead < 0 or ahead > GAP:
            self._restart(index)
        while self._held is None or (self._held[0] - index) * back < 0:
            if self._prefetcher is None:
                break
            try:
                self._held = next(self._prefetcher)
            except StopIteration:
                self._check_end(index)
                return None
        self._next = index + back
        if self._held is None or self._held[0] != index:
            return None
        frame, self._held = self._held[1], None
        return frame

    def close(self) -> None:
        """Stop reading ahead."""
        if self._prefetcher is not None:
            self._prefetcher.close()
        self._prefetcher = self._held = None

    def _restart(self, index: int) -> None:
        self.close()
        back = -1 if self._is_reverse else 1
        images, is_live = self._model.buffers.images, self._source.length is None
        at_once = 1 if images is None or is_live else images.frames_at_once
        ahead = 2 * at_once if at_once > 1 else AHEAD
        if images is None:
            side = self._model.preprocessing.size
            ahead = max(1, min(AHEAD, MOST_AHEAD // (PIXEL_BYTES * side * side)))
        self._prefetcher = Prefetcher(
            self._source,
            lambda frames: prepare_ahead(frames, self._model),
            start=index,
            stop=None if self._last is None else self._last + back,
            reverse=self._is_reverse,
            ahead=ahead,
            at_once=at_once,
        )
        self._next = index

    def _check_end(self, index: int) -> None:
        """The thread has nothing more: the frame is missing, or lies behind the end."""
        length = self._source.length
        if length is None or not 0 <= index < length:
            raise EOFError


@contextmanager
def feeding(
    source: FrameSource, model: SegmentationModel, *, last: int | None, is_reverse: bool
) -> Iterator[FrameFeed]:
    """A feed that stops reading ahead when the block is left."""
    feed = FrameFeed(source, model, last=last, is_reverse=is_reverse)
    try:
        yield feed
    finally:
        feed.close()


def prepare(frame: Rgb, model: SegmentationModel) -> ReadyFrame:
    """A frame with its tensor, made where the model computes if the engine can."""
    how, images = model.preprocessing, model.buffers.images
    if images is not None:
        with suppress(DeviceMemoryError):  # the host resizes as well
            return ReadyFrame(frame, images.frame_pixels(frame, how.size, how.mean, how.std))
    return ReadyFrame(frame, resize_video_frame(frame, how.size, mean=how.mean, std=how.std))


def prepare_ahead(frames: Sequence[Rgb], model: SegmentationModel) -> list[ReadyFrame]:
    """Frames from a thread that works ahead; where that overlaps, they are encoded as well.

    A CPU has no work to overlap: there frames wait for the thread that tracks.
    """
    images = model.buffers.images
    if images is None:
        return [prepare(frame, model) for frame in frames]
    with images.beside():
        ready = [prepare(frame, model) for frame in frames]
        if not all(model.buffers.owns(frame.pixels) for frame in ready):
            return ready  # short of memory: they are encoded one by one, when they are due
        try:
            pixels = model.buffers.concat([frame.pixels[None] for frame in ready])
        except DeviceMemoryError:
            return ready
        features = model.encode(pixels)
        return [replace(frame, features=features.image(i)) for i, frame in enumerate(ready)]


class EncodedFrames:
    """The frames of a source, encoded, and kept up to a size in bytes and a count.

    The least used go first; the last one is kept whatever its size. The count matters for small
    models: it bounds how long a video goes on filling the cache.
    """

    def __init__(self, source: FrameSource, model: SegmentationModel, megabytes: float) -> None:
        if megabytes < 0:
            raise OptionError("a cache has no negative size", got=f"{megabytes} MB")
        self._source, self.model = source, model
        self._limit = int(megabytes * MEGABYTE)
        self._kept: OrderedDict[int, Features] = OrderedDict()
        self.nbytes = 0

    def __call__(self, index: int) -> Features:
        """A frame, read and encoded if need be."""
        kept = self.get(index)
        if kept is not None:
            return kept
        return self.put(index, prepare(self._source.frame(index), self.model))

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, index: int) -> Features | None:
        """A frame that is encoded already."""
        if index not in self._kept:
            return None
        self._kept.move_to_end(index)
        return self._kept[index]

    def put(self, index: int, ready: ReadyFrame) -> Features:
        """Encode a frame that is at hand and is not kept, and keep it."""
        features = ready.features or self.model.encode(ready.pixels[None])
        self._kept[index] = features
        self.nbytes += features.nbytes
        while len(self._kept) > 1 and (self.nbytes > self._limit or len(self._kept) > MOST_FRAMES):
            self.nbytes -= self._kept.popitem(last=False)[1].nbytes
        return features
