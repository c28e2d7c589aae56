"""One object of a video: its prompts, what was found there, and what is remembered of it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from samgraph.engines import Buffer
from samgraph.predict.prompts import Prompt
from samgraph.predict.video.archive import Archive
from samgraph.predict.video.bank import Memory, MemoryBank, Recalled
from samgraph.predict.video.few_memories import FewMemories
from samgraph.predict.video.policies.history import (
    RECENT,
    BoundPolicy,
    History,
    ObservingPolicy,
)
from samgraph.predict.video.policy import MemoryPolicy, Position
from samgraph.predict.video.prompts import ObjectId
from samgraph.predict.video.result import ObjectResult
from samgraph.predict.video.step import Outcome


@dataclass(slots=True)
class Run:
    """Frames tracked one after another, with the prompts as they are now."""

    first: int
    last: int
    kept: dict[int, ObjectResult] = field(default_factory=dict)
    nbytes: int = 0

    def follows(self, frame: int, is_reverse: bool) -> bool:
        """Whether the frame is in the run, or comes next."""
        if is_reverse:
            return self.last - 1 <= frame <= self.first
        return self.first <= frame <= self.last + 1

    def keep(self, frame: int, result: ObjectResult, most: float) -> None:
        """Keep a result to show it again, within a size; the first ones stay.

        Results whose masks somebody asked for are kept run-length encoded.
        """
        if frame in self.kept:
            return
        if self.nbytes + result.nbytes > most:
            self.kept = {index: one.compact() for index, one in self.kept.items()}
            self.nbytes = sum(one.nbytes for one in self.kept.values())
        if self.nbytes + result.nbytes <= most:
            self.kept[frame] = result
            self.nbytes += result.nbytes


class TrackedObject:
    """The state of one object. Objects know nothing of each other.

    With `turns_back`, what a run in the other direction would read around the start is kept.
    `most_tracked` limits the mask memories of tracked frames that are read (an approximation).
    """

    def __init__(
        self,
        name: ObjectId,
        policy: MemoryPolicy,
        length: int | None,
        turns_back: bool = True,
        *,
        most_tracked: int | None = None,
    ) -> None:
        self.name, self._length = name, length
        self.history = History()  # what an observing policy noted
        self.policy = policy
        if isinstance(policy, ObservingPolicy):
            self.policy = BoundPolicy(policy, self.history)
        if most_tracked is not None:
            self.policy = FewMemories(self.policy, most_tracked)
        self._turns_back = turns_back
        self.bank = MemoryBank()
        self.archive = Archive(self.policy, length)
        self.prompts: dict[int, Prompt] = {}
        self.answers: dict[int, Outcome] = {}  # on prompted frames
        self.waiting: dict[int, Buffer | None] = {}  # prompted frames that are not in the bank yet
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
        self.history.discard(frame)
        self.archive.discard(frame)
        self.waiting.pop(frame, None)

    def take_back(self, frame: int) -> None:
        """Forget the prompts on a frame."""
        self.prompts.pop(frame, None)
        self.answers.pop(frame, None)
        self.waiting.pop(frame, None)
        self.bank.prompted.pop(frame, None)
        self.tracked.pop(frame, None)
        self.history.discard(frame)
        self.runs.clear()

    def enter(self, frame: int, is_reverse: bool, *, is_missing: bool = False) -> Run:
        """Go on with the run in this direction, or begin another."""
        run = self.runs.get(is_reverse)
        if run is None or not run.follows(frame, is_reverse):
            self.runs[is_reverse] = run = Run(frame, frame)
        if frame != run.last and (frame < run.last) == is_reverse:
            run.last = frame
        if not is_missing:
            self.tracked[frame] = is_reverse
        return run

    def note(
        self, frame: int, is_reverse: bool, outcome: Outcome, memory: Memory, archive_bytes: float
    ) -> None:
        """Remember what tracking found, and let go of what is not read any more."""
        self.bank.tracked[frame] = memory
        self.latest = frame, outcome
        dropped = self.bank.forget(self.policy, self._positions(frame, is_reverse))
        if dropped:
            self.archive.put(dropped, is_reverse, archive_bytes)

    def recall(self, position: Position) -> Recalled | None:
        """What a frame reads; None where some of it has been forgotten."""
        selection = self.policy.choose(position, self.bank.prompted, self.tracked)
        known = self.bank.tracked
        for frame, _, is_prompted in selection.masks:
            if not is_prompted and (frame not in known or known[frame].mask is None):
                return None
        for frame, _, is_prompted in selection.pointers:
            if not is_prompted and frame not in known:
                return None
        return self.bank.recall(selection)

    def missing(self, position: Position) -> list[int]:
        """The frames that were tracked, are read here, and have been forgotten for good."""
        selection = self.policy.choose(position, self.bank.prompted, self.tracked)
        known = self.bank.tracked
        masks = [
            frame
            for frame, _, is_prompted in selection.masks
            if not is_prompted and (frame not in known or known[frame].mask is None)
        ]
        pointers = [f for f, _, is_prompted in selection.pointers if not is_prompted]
        pointers = [frame for frame in pointers if frame not in known]
        return [frame for frame in dict.fromkeys(masks + pointers) if not self._fetched(frame)]

    def steps_to(self, frames: Collection[int], is_reverse: bool) -> Iterator[int]:
        """What must be tracked again to have these frames, from the nearest complete frame on."""
        back = -1 if is_reverse else 1
        order = sorted(frames, reverse=is_reverse)
        first, last = order[0], order[-1]
        while first in self.tracked and self.missing(Position(first, is_reverse, self._length)):
            first -= back
        for frame in range(first, last + back, back):
            if frame in self.tracked and frame not in self.bank.prompted:
                yield frame

    def forget_past(self, frame: int) -> None:
        """Drop all that a stream, which never looks back, has no use for after this frame."""
        position = Position(frame, False, self._length)
        for index in [index for index in self.answers if index < frame]:
            del self.prompts[index], self.answers[index]
        prompted = self.bank.prompted
        for index in list(prompted):
            if not self.policy.keeps_prompted(index, position, prompted):
                del prompted[index]
        self.tracked = dict.fromkeys((*self.bank.tracked, frame), False)
        self.history.keep_only(self.bank.tracked, frame - RECENT)

    def _fetched(self, frame: int) -> bool:
        """Take a frame back from the archive; False if it is not whole."""
        known = self.bank.tracked.get(frame)
        memory = self.archive.take(frame)
        if memory is None:
            return False
        if memory.mask is None and known is not None and known.mask is not None:
            return True
        self.bank.tracked[frame] = memory
        return memory.mask is not None

    def _positions(self, frame: int, is_reverse: bool) -> list[Position]:
        """Where tracking may go on: here, where the other direction ended, and where this began.

        A run in the other direction reads what this one found around its start.
        """
        positions = [Position(frame, is_reverse, self._length)]
        for direction, run in self.runs.items():
            if direction != is_reverse:
                positions.append(Position(run.last, direction, self._length))
        own = self.runs.get(is_reverse)
        if own is not None and self._turns_back:
            positions.append(Position(own.first, not is_reverse, self._length))
        return positions
