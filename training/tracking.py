"""A clip followed from its first frame, as the tracker does it: decode, remember, recall.

Masks are remembered as they will be served, with steeper logits (`export.py`).

Shapes: N objects, T frames.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch.nn import functional

from training.data import SIDE
from training.export import STEEPER
from training.prompting import Prompter
from training.student import Student, Tensors


@dataclass
class Bank:
    """What is remembered of N objects: the first frame for ever, and the last ones."""

    memories: list[torch.Tensor] = field(default_factory=list)  # of frames 0, 1, ...
    pointers: list[torch.Tensor] = field(default_factory=list)

    def recalled(
        self, student: Student, embedding: torch.Tensor, pace: torch.Tensor
    ) -> torch.Tensor:
        """The features of the next frame, in the light of all before; times are `pace` a frame."""
        config, now, N = student.config, len(self.memories), len(embedding)
        recent = range(max(1, now - config.memory_frames + 1), now)
        frames = [0, *recent]
        slots = [config.memory_frames - 1, *(now - i - 1 for i in recent)]
        indices = [0, *range(max(1, now - config.max_pointers + 1), now)]
        steps = _numbers(tuple(now - i for i in indices), embedding.device)
        return student.recall(
            embedding,
            torch.stack([self.memories[i] for i in frames], 1),
            _numbers(tuple(slots), embedding.device).expand(N, -1),
            torch.stack([self.pointers[i] for i in indices], 1),
            (steps * pace).expand(N, -1),
        )


@lru_cache(maxsize=256)
def _numbers(values: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, device=device)


@dataclass(frozen=True)
class FirstPrompt:
    """How objects are shown in the first frame: by points, or by masks [N, h, w]."""

    points: torch.Tensor
    labels: torch.Tensor
    multimask: torch.Tensor  # bool [N]
    masks: torch.Tensor | None = None


@dataclass
class Corrections:
    """Clicks on mistakes of one frame after the first; `answers` are filled in, round by round.

    Each with whether one of three masks is asked for, as after a single click: bool [N].
    """

    frame: int
    rounds: int
    target: torch.Tensor  # [N, h, w]
    prompter: Prompter
    answers: list[tuple[Tensors, torch.Tensor]] = field(default_factory=list)

    def make(self, student: Student, frame: Tensors, answer: Tensors) -> Tensors:
        """The last answer to clicks on what was found; `frame` has features that remember."""
        N, device = len(self.target), self.target.device
        points = torch.zeros(N, 0, 2, device=device)
        labels = torch.zeros(N, 0, dtype=torch.long, device=device)
        logits = answer["best_mask"].detach()
        for i in range(self.rounds):
            point, label = self.prompter.correction(logits, self.target)
            points, labels = torch.cat([points, point], 1), torch.cat([labels, label], 1)
            multi = torch.full((N,), i == 0, device=device)
            given = (STEEPER * logits).clamp(-32, 32)  # as served
            answer = student.decode(frame, points, labels, given, multimask=multi, no_memory=False)
            self.answers.append((answer, multi))
            logits = answer["best_mask"].detach()
        return answer


def features_of(student: Student, image: torch.Tensor, count: int) -> list[Tensors]:
    """The features of each frame of clips [B, T, ...], repeated for `count` objects in all."""
    B, T = image.shape[:2]
    found = student.encode(image.flatten(0, 1))
    frames = {key: value.unflatten(0, (B, T)).unbind(1) for key, value in found.items()}
    return [
        {key: each[t].repeat_interleave(count // B, 0) for key, each in frames.items()}
        for t in range(T)
    ]


def follow(
    student: Student,
    features: list[Tensors],
    prompt: FirstPrompt,
    pace: torch.Tensor,
    corrections: Corrections | None = None,
) -> list[Tensors]:
    """The answers for each frame; `features` are of each frame, repeated for every object.

    `pace` is one over the number of frames that counts as the longest distance of a pointer.
    """
    bank, answers = Bank(), []
    N = len(prompt.points)
    device = prompt.points.device
    nowhere = torch.zeros(N, 1, 2, device=device), torch.full((N, 1), -1, device=device)
    for t, frame in enumerate(features):
        is_corrected = corrections is not None and t == corrections.frame
        if t == 0:
            answer, mask = _start(student, frame, prompt)
        else:
            recalled = bank.recalled(student, frame["embedding"], pace)
            answer = student.decode(
                {**frame, "embedding": recalled},
                *nowhere,
                multimask=torch.ones(N, dtype=torch.bool, device=device),
                no_memory=False,
            )
            if corrections is not None and is_corrected:
                answer = corrections.make(student, {**frame, "embedding": recalled}, answer)
            mask = STEEPER * answer["best_mask"]
        answers.append(answer)
        if t == len(features) - 1:
            break
        binary = is_corrected or (t == 0 and prompt.masks is None)
        score = answer["object_score"]
        bank.memories.append(
            student.remember(frame["embedding"], mask.clamp(-32, 32), score, binary=binary)
        )
        bank.pointers.append(answer["pointer"])
    return answers


def _start(student: Student, frame: Tensors, prompt: FirstPrompt) -> tuple[Tensors, torch.Tensor]:
    """The answer on the first frame, and the mask to remember."""
    flag = prompt.multimask
    if prompt.masks is None:
        answer = student.decode(frame, prompt.points, prompt.labels, multimask=flag)
        return answer, answer["best_mask"]
    whole = functional.interpolate(prompt.masks[:, None], SIDE, mode="bilinear")
    given = student.mask_prompt((whole > 0.5).float())
    answer = student.decode(
        frame,
        prompt.points,
        prompt.labels,
        given["prompt"],
        multimask=flag & False,
        no_memory=False,
    )
    return {**answer, "object_score": torch.full_like(answer["object_score"], 10.0)}, given[
        "logits"
    ]
