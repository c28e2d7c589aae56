"""Video files: any frame by its number, exactly, in bounded memory.

What a video means, where there is a choice:

* frames are numbered in the order they are shown, from 0, whatever their times are: variable
  frame rates need no care. A damaged frame keeps its number;
* rotation and mirroring in steps of a quarter turn, as telephones note them, are applied; the
  pixel aspect ratio is not, and interlaced frames stay as they are;
* colours become 8-bit RGB by the matrix and range the file names; alpha is dropped;
* frames that change their size in mid-stream are resized to the size of the first.

How a frame is found: all packets are listed when the file is opened (about 100,000 a second), which
numbers the frames. Going forward, decoding just goes on; going back or far ahead, it restarts from
the last entry before the frame. Decoded frames are kept, undeveloped, up to a number, so a pass in
reverse decodes each group of frames about once for every `cache_frames` frames of it.
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
from samgraph.media.video.rotation import turn_of
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
# A decoder holds back at most 16 frames for reordering and one a thread. A frame that has not come
# out after so many more packets will not come.
PATIENCE = 24
# When the entry before a frame is so near, going on is cheaper than a seek.
NEAR = 32
# Entries that cannot be reached are given up one by one, then twice as many each time: a small file
# may have a million of them.
SINGLE_FAILURES = 16
# How many frames are looked at to tell whether time stamps give the order shown.
SAMPLE = 64
SECONDS_TO_SURVEY = 5.0

UNKNOWN, DECODED, MISSING = 0, 1, 2
SKIP_HINT = (
    'pass `on_damage="skip"`, or add `--on-damage skip`, to keep the frames that are readable'
)


class VideoFile(FrameSource):
    """A video file as a `FrameSource`; see the top of this file.

    Args:
        path: A file in MP4, MOV, Matroska, WebM or AVI, told by its content.
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
            self._declared = declared and declared - self._packets.hidden
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
        """How many frames there are, those that cannot be decoded included."""
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
                    self._is_entered = False  # interrupted: the next search begins a new run
                    raise
            if index not in self._kept:
                raise self._damaged(index)
            with errors_named(self._label):
                return self._developed(self._kept[index], index)

    def time(self, index: int) -> float | None:
        """Seconds from the first frame to this one; None if the file has no times."""
        check_index(index, self.length, self._label)
        return self._packets.seconds(index)

    def close(self) -> None:
        """Let go of the file and of all frames. May be called twice."""
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
        self._turn = turn_of(frame)
        height, width = self._coded_hw
        self._size_hw = (width, height) if self._turn.swaps else (height, width)
        if cache_frames is None:
            fit = CACHE_BYTES // max(1, sum(plane.buffer_size for plane in frame.planes))
            self._keep = max(FEWEST_KEPT, min(fit, MOST_KEPT))

    def _forget(self) -> None:
        """Know nothing about any frame, and be at the start of the file."""
        self._state = np.zeros(self.length, np.uint8)
        self._kept.clear()
        self._restart(0)

    def _find_order(self) -> None:
        """Number frames in the order the decoder gives them, if time stamps cannot be used.

        AVI, and some recorders, stamp packets in the order stored. Where that is so, and the
        decoder reorders, all of the file is decoded once.
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
        """The ordinals of the first frames in the order they come out; of all, if unsorted."""
        order: list[int] = []
        while not self._decoder.is_done:
            order += [ordinal for ordinal, _ in self._decoder.step()]
            if len(order) == SAMPLE and order == sorted(order):
                break
        return list(dict.fromkeys(order))

    def _restart(self, entry: int) -> bool:
        """Begin a new run at an entry; False if that cannot be reached."""
        self._furthest = -1
        self._is_entered = False
        if not self._decoder.restart(entry, self._packets):
            return False
        start = self._decoder.entry
        self._start = int(self._packets.index_of[start]) if start else 0
        self._is_entered = start == 0
        return True

    def _is_readable(self, index: int) -> bool:
        self._find(index)
        return index in self._kept

    def _find(self, index: int) -> None:
        """Decode until the frame is among those kept, or is known to be missing.

        It is missing if it does not come out of a run that begins at its entry, nor of one that
        comes from an earlier entry: after damage, sometimes one of them helps and not the other.
        """
        entry = self._packets.entry_for(index)
        is_fresh_tried = is_through_tried = False
        failures = 0
        if self._can_go_on(index, entry):
            if self._advance(index):
                return
            is_over = not self._decoder.has_lost_tail
            is_fresh_tried = is_over and self._decoder.entry == entry
            is_through_tried = is_over and (self._decoder.entry < entry or entry == 0)
        while not (is_fresh_tried and is_through_tried):
            entry = self._packets.entry_for(index)
            start = self._packets.entry_before(entry) if is_fresh_tried else entry
            is_there = self._restart(start)
            if is_there and self._advance(index):
                return
            if self._decoder.has_lost_tail:
                continue
            if start == 0 or (is_there and self._is_entered and not self._decoder.is_lost):
                is_through_tried |= is_fresh_tried or start == 0
                is_fresh_tried = True
            else:
                failures += 1
                count = 1 << max(0, failures - SINGLE_FAILURES)
                self._packets = self._packets.without_entries(start, count)
        self._state[index] = MISSING

    def _can_go_on(self, index: int, entry: int) -> bool:
        """Whether the frame lies ahead in this run, and no better entry does."""
        is_behind = index < self._start or entry > self._decoder.fed + NEAR
        if is_behind or not self._is_entered or self._decoder.is_lost:
            return False
        return index > self._furthest or bool(self._state[index] == UNKNOWN)

    def _advance(self, index: int) -> bool:
        """Decode on until the frame comes out; False once it cannot come any more."""
        self._wanted = index
        last = int(self._packets.ordinal_of[index]) + PATIENCE
        while index not in self._kept:
            is_passed = self._furthest > index and self._decoder.fed > last
            is_false_entry = self._furthest >= 0 and not self._is_entered
            if self._decoder.is_done or is_passed or is_false_entry:
                return False
            self._step()
        return True

    def _step(self) -> None:
        """Decode one packet, and note the frames that come out."""
        for ordinal, frame in self._decoder.step():
            self._note(int(self._packets.index_of[ordinal]), frame)

    def _note(self, index: int, frame: Any) -> None:
        """Keep a frame that came out, unless it may rest on frames before the entry."""
        if index < self._start:
            return
        # A run is entered once the frame of its entry has come out first, and whole. Otherwise
        # the file called something a key frame that is not, or it is damaged there.
        self._is_entered |= index == self._start and not frame.is_corrupt and self._furthest < 0
        self._furthest = max(self._furthest, index)
        if not self._is_entered or self._state[index] == MISSING:
            return
        if frame.is_corrupt:
            self._concealed.add(index)
        self._state[index] = DECODED
        self._kept[index] = frame
        if len(self._kept) > self._keep:
            # Many frames may come out at once, at the end of the file: not the one asked for.
            del self._kept[next(kept for kept in self._kept if kept != self._wanted)]

    def _developed(self, frame: Any, index: int) -> Rgb:
        """A decoded frame as upright RGB."""
        height, width = self._coded_hw
        if (frame.height, frame.width) != self._coded_hw:
            self._resized.add(index)
        pixels = self._reformatter.reformat(frame, width, height, "rgb24").to_ndarray()
        return self._turn.applied_to(pixels)

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
        """How many frames are missing, found by decoding the rest of the file for a while."""
        deadline = time.monotonic() + SECONDS_TO_SURVEY
        while not self._is_surveyed and time.monotonic() < deadline:
            if not self._decoder.is_done:
                self._step()
            elif self._decoder.has_lost_tail:
                self._restart(self._decoder.entry)
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
