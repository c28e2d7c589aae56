"""Objects and how they are tracked from frame to frame: what videos and streams share.

Every object has its own memory, and is found as if it were alone; a frame is encoded once for all
of them, and objects with equally long memories are run together.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from itertools import count
from typing import cast

import numpy as np

from samgraph.engines import Buffer
from samgraph.errors import DeviceMemoryError, PromptError
from samgraph.models.family import Features, SegmentationModel
from samgraph.predict.prompts import Prompt
from samgraph.predict.video.bank import Memory, MemoryPool, Recalled
from samgraph.predict.video.corrections import correct
from samgraph.predict.video.few_memories import most_tracked
from samgraph.predict.video.objects import TrackedObject
from samgraph.predict.video.observing import step_observed
from samgraph.predict.video.options import TrackOptions
from samgraph.predict.video.policies.history import Candidates, Observation, ObservingPolicy
from samgraph.predict.video.policy import Position
from samgraph.predict.video.prompts import ObjectId, clicks_of, resize_mask
from samgraph.predict.video.result import ObjectResult
from samgraph.predict.video.step import (
    Outcome,
    click,
    paint,
    remember_prompted,
    step,
    without_holes,
)


class TrackingSession(ABC):
    """Objects by id, in the order they were added, and the pool their memories are in.

    Args:
        model: The model.
        options: How to track.
        length: The number of frames, if it is known.
        archive_bytes: How much of older memories is kept, in all.
        turns_back: Whether tracking may go backward.
    """

    position: int
    """The frame after the last one tracked or given."""
    numbers: dict[ObjectId, int]
    """The number of each object in pictures and files; kept when an object goes."""

    def __init__(
        self,
        model: SegmentationModel,
        options: TrackOptions,
        length: int | None,
        *,
        archive_bytes: float = 0,
        turns_back: bool = True,
    ) -> None:
        self.model, self.options, self.length = model, options, length
        self.policy, self.display = options.policy_for(model), options.display
        self._most_tracked = most_tracked(model)
        self._observer = self.policy if isinstance(self.policy, ObservingPolicy) else None
        self.at_once = options.objects_at_once or model.session.objects_at_once
        self.pool = MemoryPool(model.buffers, model.memory_layout, options.memory_precision)
        self.states: dict[ObjectId, TrackedObject] = {}
        self.numbers, self.position = {}, 0
        self._archive_bytes, self._turns_back = archive_bytes, turns_back

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The ids of the objects, in the order they were added."""
        return tuple(self.states)

    @property
    def objects_text(self) -> str:
        """Their number in words, such as `1 object`."""
        return f"{len(self.states)} object{'s' * (len(self.states) != 1)}"

    def remove(self, object: ObjectId) -> None:
        """Forget an object."""
        del self.states[self.state(object).name]

    def state(self, name: ObjectId) -> TrackedObject:
        """All that is known of an object."""
        if not isinstance(name, Hashable) or name not in self.states:
            raise PromptError(
                f"there is no object `{name}`",
                expected=", ".join(map(str, self.states)) or "no object was added",
            )
        return self.states[name]

    def new_object(self, name: ObjectId) -> TrackedObject:
        """An object that is not among the others yet.

        Its number in pictures is its id, or for a text the first that no object has had.
        """
        if name not in self.numbers:
            taken = set(self.numbers.values())
            is_free = isinstance(name, int) and name not in taken
            free = (number for number in count(1) if number not in taken)
            self.numbers[name] = cast("int", name) if is_free else next(free)
        return TrackedObject(
            name, self.policy, self.length, self._turns_back, most_tracked=self._most_tracked
        )

    def settle(self) -> None:
        """Put what was prompted since the last frame into memory."""
        for obj in self.states.values():
            if obj.waiting:
                self._encode_waiting(None)
            for frame, mask in list(obj.waiting.items()):
                if mask is not None:
                    pointer = obj.answers[frame].pointer[None]
                    obj.settle(frame, self.pool.store(mask, pointer)[0])

    def remember(self, other: "TrackingSession", objects: Iterable[ObjectId] | None = None) -> None:
        """Look for the objects of another video or stream from the next frame on.

        What is remembered of its prompted frames is taken over, in order, as the frames just before
        the next one. What was only tracked stays behind.

        Raises:
            PromptError: An object is unknown, or is there already; or the models are different.
        """
        if other.model.config != self.model.config:
            raise PromptError(
                "what one model remembers means nothing to another",
                got=other.model.config.name,
                expected=self.model.config.name,
            )
        other.settle()
        chosen = [other.state(name) for name in (other.states if objects is None else objects)]
        for obj in chosen:
            if obj.name in self.states:
                raise PromptError(
                    f"there is an object `{obj.name}` already", hint="remove it first"
                )
        for obj in chosen:
            taken = self.new_object(obj.name)
            memories = [obj.bank.prompted[frame] for frame in sorted(obj.bank.prompted)]
            for index, memory in enumerate(memories, start=self.next_frame - len(memories)):
                taken.bank.remember_prompted(index, self._copied(memory))
            self.states[obj.name] = taken

    @property
    def next_frame(self) -> int:
        """The first frame that has not been given; 0 for a video, whose frames are all there."""
        return 0

    @abstractmethod
    def _features(self, frame: int) -> Features:
        """A frame, encoded if need be."""

    @abstractmethod
    def _known_features(self, frame: int) -> Features | None:
        """A frame that is encoded already."""

    def _prompt(
        self,
        name: ObjectId,
        frame: int,
        given: Prompt,
        size_hw: tuple[int, int],
        *,
        replace: bool,
    ) -> None:
        """Find an object, new or known, from what a user gave on a frame."""
        obj = self.states.get(name) or self.new_object(name)
        if replace and frame in obj.prompts:
            passed = obj.tracked.get(frame)
            obj.take_back(frame)
            if passed is not None and obj.prompts and self.model.config.obeys_clicks:
                obj.tracked[frame] = passed  # the new clicks correct what other prompts gave
        self._encode_waiting(frame)
        earlier = obj.prompts.get(frame)
        prompt = given if earlier is None else earlier.joined(given)
        used = self.model.buffers
        try:
            answer = self._answer(obj, frame, prompt, size_hw)
        except DeviceMemoryError as error:
            self.model.leave_device(error, used)
            answer = self._answer(obj, frame, prompt, size_hw)
        obj.answer(frame, prompt, answer)
        self.states[name] = obj

    def _take_back(self, name: ObjectId, frame: int) -> None:
        """Forget the prompts of an object on a frame; one without any prompt is forgotten."""
        obj = self.state(name)
        if frame in obj.prompts:
            obj.take_back(frame)
        if not obj.prompts and not obj.bank.prompted:
            self.remove(name)

    def _track(
        self, frame: int, is_reverse: bool, moving: Sequence[TrackedObject], features: Features
    ) -> dict[ObjectId, ObjectResult]:
        """Objects on the next frame."""
        recalled = []
        for obj in moving:
            recalled.append(self._recalled(obj, frame, is_reverse))  # noqa: PERF401
        position, used = Position(frame, is_reverse, self.length), self.model.buffers
        try:
            if self._observer is None:
                found = step(self.model, features, self.pool, recalled, self.at_once)
            else:
                found = self._step_observed(position, moving, recalled, features, notes=True)
        except DeviceMemoryError as error:
            self.model.leave_device(error, used)
            found = self._step_again(position, moving, recalled, features)
        share = self._archive_bytes / len(self.states)
        results = {}
        for obj, (outcome, memory) in zip(moving, found, strict=True):
            obj.note(frame, is_reverse, outcome, memory, share)
            results[obj.name] = ObjectResult.of(obj.name, outcome)
        return results

    def _prompted_on(self, frame: int) -> dict[ObjectId, ObjectResult]:
        """The objects that are prompted on a frame."""
        return {
            name: ObjectResult.of(name, obj.answers[frame], is_prompted=True)
            for name, obj in self.states.items()
            if frame in obj.answers
        }

    def _recalled(self, obj: TrackedObject, frame: int, is_reverse: bool) -> Recalled:
        """What a frame reads; forgotten frames are tracked again first."""
        position = Position(frame, is_reverse, self.length)
        recalled = obj.recall(position)
        if recalled is not None:
            return recalled
        missing = obj.missing(position)
        while missing:
            direction = obj.tracked[missing[0]]
            alike = [index for index in missing if obj.tracked[index] == direction]
            for index in obj.steps_to(alike, direction):
                known = self._known(obj, Position(index, direction, self.length))
                features = self._features(index)
                again = self._step_alone(
                    obj, Position(index, direction, self.length), known, features
                )
                obj.bank.tracked[index] = again[1]
            missing = [index for index in missing if index not in alike]
        return self._known(obj, position)

    def _known(self, obj: TrackedObject, position: Position) -> Recalled:
        """What a frame reads of what is there."""
        bank = obj.bank
        return bank.recall(obj.policy.choose(position, bank.prompted, bank.tracked))

    def _step_again(
        self,
        position: Position,
        objects: Sequence[TrackedObject],
        recalled: Sequence[Recalled],
        features: Features,
    ) -> list[tuple[Outcome, Memory]]:
        """Objects on a frame for which the device had no memory left."""
        if self._observer is None:
            return step(self.model, features, self.pool, recalled, self.at_once)
        return self._step_observed(position, objects, recalled, features, notes=True)

    def _step_alone(
        self, obj: TrackedObject, position: Position, recalled: Recalled, features: Features
    ) -> tuple[Outcome, Memory]:
        """One object on a frame that was tracked before; its history stays as it is."""
        if self._observer is None:
            return step(self.model, features, self.pool, [recalled], self.at_once)[0]
        return self._step_observed(position, [obj], [recalled], features, notes=False)[0]

    def _step_observed(
        self,
        position: Position,
        objects: Sequence[TrackedObject],
        recalled: Sequence[Recalled],
        features: Features,
        *,
        notes: bool,
    ) -> list[tuple[Outcome, Memory]]:
        """Objects on a frame with the masks that the policy chooses, which it may note."""
        observer = cast("ObservingPolicy", self._observer)

        def choose(index: int, candidates: Candidates) -> int:
            history = objects[index].history
            found: Observation = observer.observe(history, position, candidates)
            if notes:
                history.note(position.frame, found)
            return found.choice

        return step_observed(
            self.model,
            features,
            self.pool,
            recalled,
            self.at_once,
            choose,
            compares_masks=observer.compares_masks,
        )

    def _encode_waiting(self, current: int | None) -> None:
        """Encode memories of prompted frames.

        With a current frame, only those of other frames that are encoded still: once a frame is
        left, its prompts will hardly change, and encoding it again would take long.
        """
        frames: dict[int, list[TrackedObject]] = {}
        for obj in self.states.values():
            for frame, mask in obj.waiting.items():
                if mask is None and frame != current:
                    frames.setdefault(frame, []).append(obj)
        for frame, objects in frames.items():
            features = self._features(frame) if current is None else self._known_features(frame)
            if features is None:
                continue
            masks = remember_prompted(self.model, features, [obj.answers[frame] for obj in objects])
            for i, obj in enumerate(objects):
                obj.waiting[frame] = masks[i : i + 1]

    def _answer(
        self, obj: TrackedObject, frame: int, prompt: Prompt, size_hw: tuple[int, int]
    ) -> Outcome:
        """What a prompt finds, with the memory of a frame that was tracked."""
        features = self._features(frame)
        size = self.model.preprocessing.size
        if prompt.mask is not None:
            return self._filled(paint(self.model, features, resize_mask(prompt.mask, size)))
        clicks = clicks_of(prompt, size_hw, size)
        answer = obj.answers.get(frame)
        previous: Buffer | None = None if answer is None else answer.logits
        if frame not in obj.tracked:
            return self._filled(click(self.model, features, clicks, None, previous))
        recalled = self._recalled(obj, frame, obj.tracked[frame])
        obeys = self.model.config.obeys_clicks
        if previous is None or obeys:
            remembered = self._remembered(obj, frame, recalled, features)
            previous = remembered if previous is None else previous
        if obeys:
            return self._filled(correct(self.model, features, clicks, previous, remembered))
        read = self.pool.read([recalled])
        return self._filled(click(self.model, features, clicks, read, previous))

    def _remembered(
        self, obj: TrackedObject, frame: int, recalled: Recalled, features: Features
    ) -> Buffer:
        """The logits that memory alone gives on a tracked frame."""
        latest = obj.latest
        if latest is None or latest[0] != frame:
            position = Position(frame, obj.tracked[frame], self.length)
            latest = frame, self._step_alone(obj, position, recalled, features)[0]
        return self._filled(latest[1]).logits

    def _filled(self, outcome: Outcome) -> Outcome:
        """The outcome with small holes filled, if that was asked for."""
        if not self.display.fill_holes:
            return outcome
        buffers = self.model.buffers
        low = np.asarray(buffers.download(outcome.logits))
        filled = buffers.upload(without_holes(low, self.display.fill_holes))
        return Outcome(filled, outcome.score, outcome.iou, outcome.pointer)

    def _copied(self, memory: Memory) -> Memory:
        """The memory of another session in pages of this one."""
        mask = None if memory.mask is None else self.pool.masks.store(memory.mask.buffer)[0]
        return Memory(mask, self.pool.pointers.store(memory.pointer.buffer)[0])
