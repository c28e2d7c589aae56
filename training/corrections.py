"""Clicks on frames that remember: a clip is followed, and corrected in the middle, in rounds.

The memory of some objects is wrong: the first frame shows another object of the clip, and the
clicks ask for the one beside it. A corrected frame is remembered as it is served: hardened, and in
the place of a tracked frame.

Shapes: B clips, N objects (N / B of each clip), T frames.
"""

from functools import lru_cache, partial
from typing import Any, Protocol

import torch

from training.losses import answer_loss
from training.prompting import Prompter
from training.recorded import Losses
from training.student import Student
from training.tracking import Corrections, FirstPrompt, features_of, follow

DISAGREES = 0.3  # of the objects have a memory of another
ROUNDS = 3


class Learner(Protocol):
    """What has a student."""

    student: Student


def shown_first(target: torch.Tensor, clips: int, share: torch.Tensor) -> torch.Tensor:
    """The masks [N, T, h, w] that the first prompts show: of some objects, their neighbours'.

    `share` [N] are random numbers; those below `DISAGREES` are given another, if it can be seen.
    """
    other = target.unflatten(0, (clips, -1)).roll(1, 1).flatten(0, 1)
    is_there = other[:, 0].mean((1, 2)) > 0.002
    swaps = (share < DISAGREES) & is_there
    return torch.where(swaps[:, None, None, None], other, target)


@lru_cache(maxsize=64)
def losses_at(frame: int) -> Any:
    """The losses of clips that are corrected on a frame: always the same function for one frame."""
    return partial(correction_losses, frame)


def correction_losses(
    frame: int,
    run: Learner,
    image: torch.Tensor,
    target: torch.Tensor,
    shown: torch.Tensor,
    known: torch.Tensor,
    pace: torch.Tensor,
    points: torch.Tensor,
    labels: torch.Tensor,
    multimask: torch.Tensor,
) -> Losses:
    """Losses of what was shown until the correction, of each round of it, and of what follows.

    `shown` [N, T, h, w] is what the first prompt points at, `target` what the clicks ask for.
    """
    student, T = run.student, image.shape[1]
    corrections = Corrections(frame, ROUNDS, target[:, frame], Prompter(student.device))
    prompt = FirstPrompt(points, labels, multimask)
    features = features_of(student, image, len(target))
    answers = follow(student, features, prompt, pace, corrections)
    counts = known & (shown[:, :1].flatten(2).mean(2) > 0.002)
    before = after = target.new_zeros(())
    for t, answer in enumerate(answers):
        wanted = shown[:, t] if t < frame else target[:, t]
        multi = multimask | (t > 0)
        present = wanted.mean((1, 2)) > 0.0008
        if t < frame:
            before = before + answer_loss(answer, wanted, multi, present, counts[:, t])
        elif t > frame:
            after = after + answer_loss(answer, wanted, multi, present, counts[:, t])
    present = target[:, frame].mean((1, 2)) > 0.0008
    rounds = [
        answer_loss(answer, target[:, frame], multi, present, counts[:, frame])
        for answer, multi in corrections.answers
    ]
    return {
        "before": before / max(1, frame),
        "corrections": torch.stack(rounds).mean(),
        "after": after / max(1, T - 1 - frame),
    }
