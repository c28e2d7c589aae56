"""Training with corrections: who is shown first, what is clicked, what is remembered."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

from training.corrections import ROUNDS, correction_losses, losses_at, shown_first  # noqa: E402
from training.export import STEEPER  # noqa: E402
from training.prompting import Prompter  # noqa: E402
from training.scenes import MASK  # noqa: E402
from training.tracking import Corrections, FirstPrompt, follow  # noqa: E402

CLICKED = slice(20, 60)


def two_things(frames: int = 3) -> Any:
    """The masks of two things of one clip: [2, T, MASK, MASK]."""
    target = torch.zeros(2, frames, MASK, MASK)
    target[0, :, CLICKED, 10:50] = 1.0
    target[1, :, CLICKED, 70:110] = 1.0
    return target


def logits_of(masks: Any) -> Any:
    return torch.where(masks > 0.5, 8.0, -8.0)


class Student:
    """Answers a correction with the true mask, anything else with what is `known`."""

    device = "cpu"
    config = SimpleNamespace(memory_frames=7, max_pointers=16)

    def __init__(self, known: Any, truth: Any) -> None:
        self.known, self.truth = known, truth
        self.asked: list[dict[str, Any]] = []
        self.remembered: list[tuple[Any, bool]] = []

    def encode(self, images: Any) -> dict[str, Any]:
        return {"embedding": images}

    def recall(self, embedding: Any, *_: Any) -> Any:
        return embedding + 100.0

    def remember(self, embedding: Any, mask: Any, score: Any, *, binary: bool) -> Any:
        self.remembered.append((mask, binary))
        return torch.zeros(len(mask), 1, 4)

    def decode(self, frame: Any, points: Any, labels: Any, mask: Any = None, **more: Any) -> Any:
        self.asked.append(
            {"frame": frame, "points": points, "labels": labels, "mask": mask, **more}
        )
        is_click = bool((labels >= 0).all()) and mask is not None
        masks = logits_of(self.truth if is_click else self.known)[:, None].expand(-1, 4, -1, -1)
        N = len(masks)
        score = torch.full((N, 1), 20.0)
        pointer = torch.zeros(N, 8)
        found = {"masks": masks, "ious": torch.ones(N, 4), "object_score": score}
        return {**found, "best_mask": masks[:, :1], "pointer": pointer}


def prompt(count: int) -> FirstPrompt:
    labels = torch.full((count, 1), 1)
    return FirstPrompt(torch.zeros(count, 1, 2), labels, torch.ones(count, dtype=torch.bool))


def test_some_are_shown_their_neighbour_first() -> None:
    target = torch.cat([two_things(), two_things()])
    share = torch.tensor([0.1, 0.9, 0.9, 0.2])
    shown = shown_first(target, 2, share)
    assert torch.equal(shown, target[[1, 1, 2, 2]])
    target[1, 0] = 0.0  # a neighbour that cannot be seen at the start is not shown
    assert torch.equal(shown_first(target, 2, share)[0], target[0])


def test_a_frame_is_corrected_with_its_memory_and_remembered_so() -> None:
    target = two_things()
    student: Any = Student(target[[1, 0], 0], target[:, 1])
    corrections = Corrections(1, 2, target[:, 1], Prompter("cpu", 0))
    frames = [{"embedding": torch.full((2, 1), float(t))} for t in range(3)]

    answers = follow(student, frames, prompt(2), torch.tensor(0.1), corrections)

    first, again = student.asked[2:4]
    for asked in (first, again):
        assert asked["frame"]["embedding"][0, 0] == 101.0  # conditioned
        assert asked["no_memory"] is False
    assert (first["points"].shape[1], again["points"].shape[1]) == (1, 2)
    assert first["multimask"].all()
    assert not again["multimask"].any()
    wrong = logits_of(target[[1, 0], 0])[:, None]
    assert torch.equal(first["mask"], (STEEPER * wrong).clamp(-32, 32))
    x, y = first["points"][0, 0] / 2
    inside = bool(target[0, 1, int(y), int(x)])
    assert inside == bool(first["labels"][0, 0])
    assert torch.equal(answers[1]["best_mask"], logits_of(target[:, 1])[:, None])
    assert len(corrections.answers) == 2
    masks, binary = zip(*student.remembered, strict=True)
    assert binary == (True, True)  # the prompted frame and the corrected one
    assert torch.equal(masks[1], (STEEPER * answers[1]["best_mask"]).clamp(-32, 32))


@pytest.mark.parametrize("obeys", [True, False])
def test_answers_that_ignore_the_clicks_cost(obeys: bool) -> None:
    target = two_things()
    known = target[[1, 0], 0]
    student: Any = Student(known, target[:, 1] if obeys else known)
    run: Any = SimpleNamespace(student=student)
    image, shown = torch.zeros(1, 3, 3, 8, 8), target[[1, 0]]
    yes = torch.ones(2, 3, dtype=torch.bool)
    given = prompt(2)

    asked = given.points, given.labels, given.multimask
    losses = correction_losses(1, run, image, target, shown, yes, torch.tensor(0.1), *asked)

    assert float(losses["before"]) == pytest.approx(0, abs=0.02)  # what was shown, not asked for
    assert (float(losses["corrections"]) < 0.02) == obeys
    assert float(losses["after"]) > 1  # this student never learns from it
    assert len([asked for asked in student.asked if asked["mask"] is not None]) == ROUNDS


def test_one_function_for_a_frame() -> None:
    assert losses_at(3) is losses_at(3)
    assert losses_at(3) is not losses_at(4)
