"""One object of a video: its prompts, what was found there, and what is remembered of it."""

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, field

from samgraph.media.mask.rle import Rle
from samgraph.predict.video.archive import Archive
from samgraph.predict.video.memory_bank import Memory, MemoryBank, MemoryPolicy, Moment, Stored
from samgraph.predict.video.object_prompts import ObjectId, Prompt
from samgraph.predict.video.result import ObjectResult
from samgraph.predict.video.tracker import Outcome

# What a kept result takes beside its mask: a record and its place in a table.
RECORD_BYTES = 700


@dataclass(slots=True)
class Run:
    """Frames tracked one after another, with the prompts as they are now."""

    first: int
    last: int
    shown: dict[int, ObjectResult] = field(default_factory=dict)
    bytes: int = 0

    def follows(self, frame: int, is_reverse: bool) -> bool:
        """Whether the frame is in the run, or comes next."""
        if is_reverse:
            return self.last - 1 <= frame <= self.first
        return self.first <= frame <= self.last + 1


class TrackedObject:
    """The state of one object. Objects know nothing of each other.

    With `turns_back`, what a run in the other direction would read around the start is kept.
    """

    def __init__(
        self, name: ObjectId, policy: MemoryPolicy, length: int | None, turns_back: bool = True
    ) -> None:
        self.name, self._policy, self._length = name, policy, length
        self._turns_back = turns_back
        self.bank = MemoryBank()
        self.archive = Archive(policy, length)
        self.prompts: dict[int, Prompt] = {}
        self.answers: dict[int, Outcome] = {}  # on prompted frames
        self.waiting: dict[int, Stored | None] = {}  # prompted frames that are not in the bank yet
        self.tracked: dict[int, bool] = {}  # frames that were passed, and whether backward
        self.runs: dict[bool, Run] = {}  # by direction
        self.latest: tuple[int, Outcome] | None = None

    def answer(self, frame: int, prompt: Prompt, outcome: Outcome) -> None:
        """Note a prompt and what came of it; earlier results no longer hold."""
        self.prompts[frame] = prompt
        self.answers[frame] = outcome
        self.waiting[frame] = None
        self.runs.clear()

    def settle(self, frame: int, memory: Memory) -> None:
        """Remember a prompted frame."""
        self.bank.remember_prompted(frame, memory)
        self.archive.discard(frame)
        self.waiting.pop(frame, None)

    def take_back(self, frame: int) -> None:
        """Forget the prompts on a frame."""
        self.prompts.pop(frame, None)
        self.answers.pop(frame, None)
        self.waiting.pop(frame, None)
        self.bank.prompted.pop(frame, None)
        self.tracked.pop(frame, None)
        self.runs.clear()

    def shown(self, frame: int, is_reverse: bool) -> ObjectResult | None:
        """The result of an earlier run that still holds."""
        run = self.runs.get(is_reverse)
        return None if run is None else run.shown.get(frame)

    def enter(self, frame: int, is_reverse: bool, *, is_missing: bool = False) -> None:
        """Go on with the run in this direction, or begin another."""
        run = self.runs.get(is_reverse)
        if run is None or not run.follows(frame, is_reverse):
            self.runs[is_reverse] = run = Run(frame, frame)
        if frame != run.last and (frame < run.last) == is_reverse:
            run.last = frame
        if not is_missing:
            self.tracked[frame] = is_reverse

    def note(
        self, frame: int, is_reverse: bool, outcome: Outcome, memory: Memory, archive_bytes: float
    ) -> None:
        """Remember what tracking found, and let go of what is not read any more."""
        self.bank.remember(frame, memory)
        self.latest = frame, outcome
        dropped = self.bank.forget(self._policy, self._moments(frame, is_reverse))
        self.archive.put(dropped, is_reverse, archive_bytes)

    def keep_shown(
        self, frame: int, is_reverse: bool, object_result: ObjectResult, most: float
    ) -> None:
        """Keep a result, with its mask encoded, to show it again; the first ones stay."""
        run, rle = self.runs.get(is_reverse), object_result.rle
        if run is None or rle is None or frame in run.shown:
            return
        size = RECORD_BYTES + len(rle["counts"])
        if run.bytes + size <= most:
            run.shown[frame] = object_result
            run.bytes += size

    def missing(self, moment: Moment) -> list[int]:
        """The frames that were tracked, are read at this moment, and have been forgotten."""
        passed = _Passed(self.tracked, self.bank.prompted)
        choice = self._policy.choose(moment, self.bank.prompted, passed)
        known = self.bank.tracked
        masks = [
            read.frame
            for read in choice.masks
            if not read.is_prompted and (read.frame not in known or known[read.frame].mask is None)
        ]
        pointers = [
            read.frame
            for read in choice.pointers
            if not read.is_prompted and read.frame not in known
        ]
        return [frame for frame in dict.fromkeys(masks + pointers) if not self._fetched(frame)]

    def steps_to(self, frames: Collection[int], is_reverse: bool) -> Iterator[int]:
        """What must be tracked again to have these frames, from the nearest complete frame on."""
        back = -1 if is_reverse else 1
        order = sorted(frames, reverse=is_reverse)
        first, last = order[0], order[-1]
        while first in self.tracked and self.missing(Moment(first, is_reverse, self._length)):
            first -= back
        for frame in range(first, last + back, back):
            if frame in self.tracked and frame not in self.bank.prompted:
                yield frame

    def forget_past(self, frame: int) -> None:
        """Drop all that a stream, which never looks back, has no use for after this frame."""
        moment = Moment(frame, False, self._length)
        for place in [place for place in self.answers if place < frame]:
            del self.prompts[place], self.answers[place]
        prompted = self.bank.prompted
        for place in list(prompted):
            if not self._policy.keeps_prompted(place, moment, prompted):
                del prompted[place]
        self.tracked = dict.fromkeys((*self.bank.tracked, frame), False)

    def _fetched(self, frame: int) -> bool:
        """Take a frame back from the archive; False if it is not whole."""
        known = self.bank.tracked.get(frame)
        memory = self.archive.take(frame)
        if memory is None:
            return False
        if memory.mask is None and known is not None and known.mask is not None:
            return True
        self.bank.remember(frame, memory)
        return memory.mask is not None

    def _moments(self, frame: int, is_reverse: bool) -> list[Moment]:
        """Where tracking may go on: here, where the other direction ended, and where this began.

        A run in the other direction reads what this one found around its start.
        """
        moments = [Moment(frame, is_reverse, self._length)]
        for direction, run in self.runs.items():
            if direction != is_reverse:
                moments.append(Moment(run.last, direction, self._length))
        own = self.runs.get(is_reverse)
        if own is not None and self._turns_back:
            moments.append(Moment(own.first, not is_reverse, self._length))
        return moments


@dataclass(frozen=True, slots=True)
class _Passed(Container[int]):
    """The frames that were tracked and are not prompted, without making a set of them."""

    tracked: dict[int, bool]
    prompted: dict[int, Memory]

    def __contains__(self, frame: object) -> bool:
        return frame in self.tracked and frame not in self.prompted


def encoded(object_result: ObjectResult, rle: Rle) -> ObjectResult:
    """A object_result with its mask encoded and its logits dropped."""
    return ObjectResult(
        object_result.name,
        object_result.score,
        object_result.iou,
        object_result.is_prompted,
        low=None,
        rle=rle,
    )
