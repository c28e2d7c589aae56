"""Objects and how they are followed from frame to frame: what videos and streams share.

Every object has its own memory, and is found as if it were alone; a frame is encoded once for all
of them, and objects with equally long memories are run together.
"""

from collections.abc import Callable, Sequence

from samgraph.errors import PromptError
from samgraph.predict.video.memory_bank import Memory, MemoryPolicy, Moment, Recalled
from samgraph.predict.video.object_prompts import ObjectId, Prompt, squeezed_mask
from samgraph.predict.video.result import ObjectResult
from samgraph.predict.video.tracked_object import TrackedObject
from samgraph.predict.video.tracker import Features, Outcome, Tracker


class Follower:
    """Objects by id, in the order they were added.

    Args:
        tracker: The model.
        policy: What frames read of memory.
        length: The number of frames, if it is known.
        features: Gives an encoded frame by its number.
        peek: The same, but None where the frame would have to be encoded.
        archive_bytes: How much of older memories is kept, in all.
        turns_back: Whether tracking may go backward.
    """

    def __init__(
        self,
        tracker: Tracker,
        policy: MemoryPolicy,
        length: int | None,
        *,
        features: Callable[[int], Features],
        peek: Callable[[int], Features | None],
        archive_bytes: float = 0,
        turns_back: bool = True,
    ) -> None:
        self.tracker, self.policy, self.length = tracker, policy, length
        self.objects: dict[ObjectId, TrackedObject] = {}
        self._features, self._peek = features, peek
        self._archive_bytes, self._turns_back = archive_bytes, turns_back

    def prompt(
        self,
        name: ObjectId,
        frame: int,
        given: Prompt,
        size_hw: tuple[int, int],
        *,
        replace: bool,
    ) -> None:
        """Find an object, new or known, from what a user gave on a frame."""
        one = self.objects.get(name) or self.new_object(name)
        if replace and frame in one.prompts:
            one.take_back(frame)
        self._encode_waiting(frame)
        earlier = one.prompts.get(frame)
        prompt = given if earlier is None else earlier.joined(given)
        outcome = self._answer(one, frame, prompt, size_hw)
        one.answer(frame, prompt, outcome)
        self.objects[name] = one

    def new_object(self, name: ObjectId) -> TrackedObject:
        """An object that is not among the others yet."""
        return TrackedObject(name, self.policy, self.length, self._turns_back)

    def settle(self) -> None:
        """Put what was prompted since the last frame into memory."""
        self._encode_waiting(None)
        for one in self.objects.values():
            for frame, mask in list(one.waiting.items()):
                one.settle(frame, Memory(mask, one.answers[frame].pointer))

    def follow(
        self, frame: int, is_reverse: bool, moving: Sequence[TrackedObject], features: Features
    ) -> dict[ObjectId, ObjectResult]:
        """Objects on the next frame."""
        for one in moving:
            one.enter(frame, is_reverse)
        recalled = [self._recalled(one, frame, is_reverse) for one in moving]
        found = self.tracker.track(features, recalled)
        share = self._archive_bytes / len(self.objects)
        seen = {}
        for one, (outcome, memory) in zip(moving, found, strict=True):
            one.note(frame, is_reverse, outcome, memory, share)
            seen[one.name] = ObjectResult(one.name, outcome.score, outcome.iou, low=outcome.low)
        return seen

    def enter(self, frame: int, is_reverse: bool, *, is_missing: bool = False) -> None:
        """Note that all objects have come to a frame."""
        for one in self.objects.values():
            one.enter(frame, is_reverse, is_missing=is_missing)

    def answers_on(self, frame: int) -> dict[ObjectId, ObjectResult]:
        """The objects that are prompted on a frame."""
        found = {}
        for name, one in self.objects.items():
            if frame in one.answers:
                answer = one.answers[frame]
                found[name] = ObjectResult(name, answer.score, answer.iou, True, low=answer.low)
        return found

    def known(self, name: ObjectId) -> TrackedObject:
        """The object of that id."""
        if name not in self.objects:
            raise PromptError(
                f"there is no object `{name}`",
                expected=", ".join(map(str, self.objects)) or "no object was added",
            )
        return self.objects[name]

    def remove(self, name: ObjectId) -> None:
        """Forget an object."""
        del self.objects[self.known(name).name]

    def take_back(self, name: ObjectId, frame: int) -> None:
        """Forget the prompts of an object on a frame; one without any prompt is forgotten."""
        one = self.known(name)
        if frame in one.prompts:
            one.take_back(frame)
        if not one.prompts and not one.bank.prompted:
            self.remove(name)

    def _encode_waiting(self, current: int | None) -> None:
        """Encode memories of prompted frames.

        With a current frame, only those of other frames that are encoded still: once a frame is
        left, its prompts will hardly change, and encoding it again would take long.
        """
        frames: dict[int, list[TrackedObject]] = {}
        for one in self.objects.values():
            for frame, mask in one.waiting.items():
                if mask is None and frame != current:
                    frames.setdefault(frame, []).append(one)
        for frame, ones in frames.items():
            features = self._features(frame) if current is None else self._peek(frame)
            if features is None:
                continue
            outcomes = [one.answers[frame] for one in ones]
            masks = self.tracker.remember(features, outcomes, is_prompted=True)
            for one, mask in zip(ones, masks, strict=True):
                one.waiting[frame] = mask

    def _answer(
        self, one: TrackedObject, frame: int, prompt: Prompt, size_hw: tuple[int, int]
    ) -> Outcome:
        """What a prompt finds, with the memory of a frame that was tracked."""
        features = self._features(frame)
        size = self.tracker.config.image_size
        if prompt.mask is not None:
            return self.tracker.paint(features, squeezed_mask(prompt.mask, size))
        clicks = prompt.clicks(size_hw, size)
        answer = one.answers.get(frame)
        previous = None if answer is None else answer.low
        if frame not in one.tracked:
            return self.tracker.click(features, clicks, None, previous)
        recalled = self._recalled(one, frame, one.tracked[frame])
        if previous is None:
            latest = one.latest
            if latest is None or latest[0] != frame:
                latest = frame, self.tracker.track(features, [recalled])[0][0]
            previous = latest[1].low
        return self.tracker.click(features, clicks, recalled, previous)

    def _recalled(self, one: TrackedObject, frame: int, is_reverse: bool) -> Recalled:
        """What a frame reads; forgotten frames are tracked again first."""
        moment = Moment(frame, is_reverse, self.length)
        missing = one.missing(moment)
        while missing:
            direction = one.tracked[missing[0]]
            alike = [place for place in missing if one.tracked[place] == direction]
            for place in one.steps_to(alike, direction):
                again = one.bank.recall(self.policy, Moment(place, direction, self.length))
                one.bank.remember(place, self.tracker.track(self._features(place), [again])[0][1])
            missing = [place for place in missing if place not in alike]
        return one.bank.recall(self.policy, moment)
