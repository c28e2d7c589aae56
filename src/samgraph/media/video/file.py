"""Video files: frame-exact random access in bounded memory.

Conventions:

* frames are numbered in presentation order, from 0, whatever their timestamps, so variable frame
  rates need no special case. A damaged frame keeps its index;
* the display matrix is applied where it rotates in steps of 90 degrees or mirrors; the pixel aspect
  ratio is not, and interlaced frames are not deinterlaced;
* colours become 8-bit RGB by the file's colour matrix and range; alpha is dropped;
* frames whose size changes in mid-stream are resized to the size of the first.

Random access: all packets are listed when the file is opened (about 100,000 per second), which
numbers the frames. Reading forward continues decoding; reading backward or further ahead seeks to
the last keyframe before the frame. Up to `cache_frames` decoded frames are cached before colour
conversion, so reading in reverse decodes a group of pictures once per `cache_frames` of its frames.
"""

import os
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from samgraph.errors import VideoError
from samgraph.media.image.reading import Rgb
from samgraph.media.video.boxes import check_boxes
from samgraph.media.video.decoder import Decoder
from samgraph.media.video.opening import checked_path, ends_early, errors_named, load_av
from samgraph.media.video.rotation import orientation_of
from samgraph.media.video.source import (
    Damage,
    FrameSource,
    MissingFrameError,
    OnDamage,
    check_index,
    skips,
)
from samgraph.untrusted.text import shown

MAX_FRAME_PIXELS = 36_000_000
CACHE_BYTES = 48 << 20
FEWEST_KEPT, MOST_KEPT = 4, 64
# A decoder delays at most 16 frames for reordering and one per thread. A frame that is not output
# after this many more packets is missing.
PATIENCE = 24
# Up to this distance to the keyframe, decoding on is cheaper than a seek.
NEAR = 32
# Keyframes that cannot be reached are dropped one by one, then twice as many each time: a small
# file may have a million of them.
SINGLE_FAILURES = 16
# The number of frames decoded to check that timestamps give the presentation order.
SAMPLE = 64
SECONDS_TO_SURVEY = 5.0

UNKNOWN, DECODED, MISSING = 0, 1, 2
SKIP_HINT = (
    'pass `on_damage="skip"`, or add `--on-damage skip`, to keep the frames that are readable'
)


class VideoFile(FrameSource):
    """A video file as a `FrameSource`; conventions are in the module docstring.

    Args:
        path: A file in MP4, MOV, Matroska, WebM or AVI, recognised by its content.
        on_damage: Raise `VideoError` at the first damage, or skip what cannot be decoded.
        cache_frames: How many decoded frames to keep; as many as fit in 48 MB if omitted.
        max_pixels: The most pixels a frame may have.

    Raises:
        VideoError: There is no such file, no frame of it can be decoded, or PyAV is missing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_damage: OnDamage = "error",
        cache_frames: int | None = None,
        max_pixels: int = MAX_FRAME_PIXELS,
    ) -> None:
        self._label = f"`{shown(os.fspath(path))}`"
        self._name = Path(path).name
        self._skips = skips(on_damage)
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._keep = cache_frames or MOST_KEPT
        self._concealed: set[int] = set()
        self._resized: set[int] = set()
        self._is_closed = self._is_surveyed = False
        self._wanted = 0
        real = checked_path(path)
        with errors_named(self._label):
            self._is_cut_short = check_boxes(real, self._label) or ends_early(real)
        self._decoder = Decoder(real, self._label, max_pixels)
        try:
            declared = self._decoder.declared
            self._packets = self._decoder.packet_list()
            self._declared = declared and declared - self._packets.invisible
            self._begin(cache_frames)
        except BaseException:
            self._decoder.close()
            raise

    @property
    def name(self) -> str:
        """The name of the file."""
        return self._name

    @property
    def length(self) -> int:
        """The number of frames, including those that cannot be decoded."""
        return len(self._packets.ordinal_of)

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of every frame, upright."""
        return self._size_hw

    @property
    def damage(self) -> Damage:
        """What is wrong with the file, as far as it has been decoded."""
        with self._lock:
            return self._damage()

    def frame(self, index: int) -> Rgb:
        """The frame as uint8 RGB, upright."""
        with self._lock:
            check_index(index, self.length, self._label)
            if self._is_closed:
                raise VideoError(f"{self._label} has been closed")
            if index not in self._kept and self._state[index] != MISSING:
                try:
                    self._find(index)
                except BaseException:
                    self._is_synced = False  # interrupted: the next search restarts the decoder
                    raise
            if index not in self._kept:
                raise self._damaged(index)
            with errors_named(self._label):
                return self._to_rgb(self._kept[index], index)

    def time(self, index: int) -> float | None:
        """Seconds from the first frame to this one; None if the file has no timestamps."""
        check_index(index, self.length, self._label)
        return self._packets.seconds(index)

    def close(self) -> None:
        """Close the file and drop cached frames. May be called twice."""
        with self._lock:
            self._is_closed = True
            self._kept.clear()
            self._decoder.close()

    def _begin(self, cache_frames: int | None) -> None:
        """Number the frames and decode the first one, which gives the size."""
        self._reformatter = load_av().video.reformatter.VideoReformatter()
        self._forget()
        self._find_order()
        if not self.length:
            raise VideoError(f"{self._label} holds no frames", got=self._counted(0))
        if not self._skips and (self._damage().lost or self._is_cut_short):
            raise VideoError(
                f"{self._label} is cut short", got=self._counted(self.length), hint=SKIP_HINT
            )
        first = next((i for i in range(self.length) if self._is_readable(i)), None)
        if first is None:
            raise VideoError(f"no frame of {self._label} can be decoded", got=self._counted(0))
        if first and not self._skips:
            raise self._damaged(0)
        frame = self._kept[first]
        self._coded_hw = (frame.height, frame.width)
        self._orientation = orientation_of(frame)
        height, width = self._coded_hw
        self._size_hw = (width, height) if self._orientation.swaps else (height, width)
        if cache_frames is None:
            fit = CACHE_BYTES // max(1, sum(plane.buffer_size for plane in frame.planes))
            self._keep = max(FEWEST_KEPT, min(fit, MOST_KEPT))

    def _forget(self) -> None:
        """Drop the state of all frames and restart at the beginning of the file."""
        self._state = np.zeros(self.length, np.uint8)
        self._kept.clear()
        self._restart(0)

    def _find_order(self) -> None:
        """Number frames in the decoder's output order, where timestamps are in decoding order.

        AVI and some recorders write such timestamps. Where the decoder reorders frames as well,
        the whole file is decoded once.
        """
        if self._packets.is_reordered or not self._decoder.has_reordering:
            return
        order = self._sampled_order()
        if self._decoder.has_lost_tail:
            self._restart(0)
            order = self._sampled_order()
        if order != sorted(order):
            self._packets = self._packets.in_order_of(np.array(order, np.int64))
        self._forget()

    def _sampled_order(self) -> list[int]:
        """The ordinals of the first frames in output order; of all frames, if unsorted."""
        order: list[int] = []
        while not self._decoder.is_done:
            order += [ordinal for ordinal, _ in self._decoder.step()]
            if len(order) == SAMPLE and order == sorted(order):
                break
        return list(dict.fromkeys(order))

    def _restart(self, keyframe: int) -> bool:
        """Restart the decoder at a keyframe; False if the seek fails."""
        self._furthest = -1
        self._is_synced = False
        if not self._decoder.restart(keyframe, self._packets):
            return False
        start = self._decoder.keyframe
        self._start = int(self._packets.index_of[start]) if start else 0
        self._is_synced = start == 0
        return True

    def _is_readable(self, index: int) -> bool:
        self._find(index)
        return index in self._kept

    def _find(self, index: int) -> None:
        """Decode until the frame is cached, or is known to be missing.

        It is missing if decoding from neither its keyframe nor an earlier one outputs it: after
        damage, sometimes only one of the two does.
        """
        keyframe = self._packets.keyframe_for(index)
        is_fresh_tried = is_through_tried = False
        failures = 0
        if self._can_go_on(index, keyframe):
            if self._advance(index):
                return
            is_over = not self._decoder.has_lost_tail
            is_fresh_tried = is_over and self._decoder.keyframe == keyframe
            is_through_tried = is_over and (self._decoder.keyframe < keyframe or keyframe == 0)
        while not (is_fresh_tried and is_through_tried):
            keyframe = self._packets.keyframe_for(index)
            start = self._packets.keyframe_before(keyframe) if is_fresh_tried else keyframe
            is_there = self._restart(start)
            if is_there and self._advance(index):
                return
            if self._decoder.has_lost_tail:
                continue
            if start == 0 or (is_there and self._is_synced and not self._decoder.is_lost):
                is_through_tried |= is_fresh_tried or start == 0
                is_fresh_tried = True
            else:
                failures += 1
                count = 1 << max(0, failures - SINGLE_FAILURES)
                self._packets = self._packets.without_keyframes(start, count)
        self._state[index] = MISSING

    def _can_go_on(self, index: int, keyframe: int) -> bool:
        """Whether decoding on reaches the frame, and no keyframe is better."""
        is_behind = index < self._start or keyframe > self._decoder.fed + NEAR
        if is_behind or not self._is_synced or self._decoder.is_lost:
            return False
        return index > self._furthest or bool(self._state[index] == UNKNOWN)

    def _advance(self, index: int) -> bool:
        """Decode until the frame is output; False once it is known not to be."""
        self._wanted = index
        last = int(self._packets.ordinal_of[index]) + PATIENCE
        while index not in self._kept:
            is_passed = self._furthest > index and self._decoder.fed > last
            is_false_keyframe = self._furthest >= 0 and not self._is_synced
            if self._decoder.is_done or is_passed or is_false_keyframe:
                return False
            self._step()
        return True

    def _step(self) -> None:
        """Decode one packet and cache the frames output."""
        for ordinal, frame in self._decoder.step():
            self._note(int(self._packets.index_of[ordinal]), frame)

    def _note(self, index: int, frame: Any) -> None:
        """Cache a decoded frame, unless it may depend on frames before the keyframe."""
        if index < self._start:
            return
        # The decoder is in sync once the keyframe itself is output first, and intact. Otherwise the
        # packet is falsely marked as a keyframe, or damaged.
        self._is_synced |= index == self._start and not frame.is_corrupt and self._furthest < 0
        self._furthest = max(self._furthest, index)
        if not self._is_synced or self._state[index] == MISSING:
            return
        if frame.is_corrupt:
            self._concealed.add(index)
        self._state[index] = DECODED
        self._kept[index] = frame
        if len(self._kept) > self._keep:
            # Many frames may be output at once at the end of the file: keep the one requested.
            del self._kept[next(kept for kept in self._kept if kept != self._wanted)]

    def _to_rgb(self, frame: Any, index: int) -> Rgb:
        """A decoded frame as upright RGB."""
        height, width = self._coded_hw
        if (frame.height, frame.width) != self._coded_hw:
            self._resized.add(index)
        pixels = self._reformatter.reformat(frame, width, height, "rgb24").to_ndarray()
        return self._orientation.applied_to(pixels)

    def _damage(self) -> Damage:
        return Damage(
            declared=self._declared,
            found=self.length,
            decoded=int((self._state == DECODED).sum()),
            missing=tuple(np.flatnonzero(self._state == MISSING).tolist()),
            concealed=tuple(sorted(self._concealed)),
            resized=tuple(sorted(self._resized)),
            is_cut_short=self._is_cut_short,
        )

    def _damaged(self, index: int) -> VideoError:
        """The error for a frame that cannot be decoded."""
        if self._skips:
            return MissingFrameError(f"frame {index} of {self._label} cannot be decoded")
        missing = self._survey(index)
        least = "" if self._is_surveyed else "at least "
        after = f"after frame {index - 1}" if index else "from its first frame on"
        noun = "frame" if missing == 1 else "frames"
        return VideoError(
            f"{self._label} is damaged {after} ({least}{missing} {noun} cannot be decoded)",
            got=("at most " if least else "") + self._counted(self.length - missing),
            hint=SKIP_HINT,
        )

    def _survey(self, index: int) -> int:
        """The number of missing frames, from decoding the rest of the file for a few seconds."""
        deadline = time.monotonic() + SECONDS_TO_SURVEY
        while not self._is_surveyed and time.monotonic() < deadline:
            if not self._decoder.is_done:
                self._step()
            elif self._decoder.has_lost_tail:
                self._restart(self._decoder.keyframe)
            elif self._decoder.is_lost or index < self._start:
                break
            else:
                rest = self._state[self._start :]
                rest[rest == UNKNOWN] = MISSING
                self._is_surveyed = True
        return int((self._state == MISSING).sum())

    def _counted(self, frames: int) -> str:
        """`109 frames of the 120 the file declares`."""
        if self._declared is None:
            return f"{frames} of {self.length} frames"
        return f"{frames} frames of the {self._declared} the file declares"
