"""What is trained is what is served: a clip followed in training and by the tracker is the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parity

import samgraph  # noqa: E402
from samgraph.checkpoint.builtin import built_in_path  # noqa: E402
from samgraph.models.nano.config import NANO  # noqa: E402
from samgraph.predict.video import session, step  # noqa: E402
from tests.e2e.scenes import clip  # noqa: E402
from training.export import STEEPER, read_exported  # noqa: E402
from training.scenes import normalised  # noqa: E402
from training.student import Student  # noqa: E402
from training.tracking import FirstPrompt, follow  # noqa: E402

BOX = [20.0, 250.0, 130.0, 360.0]
FRAMES = 4


def _pictures() -> list[Any]:
    size = (NANO.image_size, NANO.image_size)
    return [np.array(Image.fromarray(frame).resize(size)) for frame in clip(0, FRAMES)[0]]


def _trained(pictures: list[Any]) -> tuple[list[Any], list[Any], list[float]]:
    """The masks found and those remembered on every frame but the first, and object scores."""
    student, kept = Student(NANO, read_exported(built_in_path()), "cpu"), []
    remember = student.remember

    def watched(embedding: Any, mask: Any, score: Any, *, binary: bool) -> Any:
        kept.append(mask[0, 0].numpy())
        return remember(embedding, mask, score, binary=binary)

    student.remember = watched  # type: ignore[method-assign]
    with torch.no_grad():
        images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
        found = student.encode(normalised(images))
        features = [{k: v[t : t + 1] for k, v in found.items()} for t in range(FRAMES)]
        prompt = FirstPrompt(
            torch.tensor(BOX).reshape(1, 2, 2), torch.tensor([[2, 3]]), torch.tensor([False])
        )
        answers = follow(student, features, prompt, torch.tensor(1 / (FRAMES - 1)))
    scores = [float(answer["object_score"]) for answer in answers[1:]]
    masks = [STEEPER * answer["best_mask"][0, 0].numpy() for answer in answers[1:]]
    masks = [np.maximum(mask, -1024) for mask in masks]  # as where nothing is visible
    return masks, kept[1:], scores


def test_training_follows_as_the_tracker_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pictures, seen = _pictures(), []
    whole = step.step

    def watched(*given: Any) -> Any:
        outcomes = whole(*given)
        seen.append(outcomes[0][0])
        return outcomes

    monkeypatch.setattr(session, "step", watched)
    monkeypatch.setenv("SAMGRAPH_CACHE", str(tmp_path))
    with samgraph.load().video(pictures, memory_precision="fp32") as video:
        video.add(frame=0, object=1, box=BOX)
        list(video.track())

    masks, kept, scores = _trained(pictures)
    assert len(seen) == FRAMES - 1
    for outcome, mask, score in zip(seen, masks, scores, strict=True):
        assert float(outcome.score[0]) == pytest.approx(score, abs=0.05)
        np.testing.assert_allclose(outcome.logits[:], mask, atol=0.02 * np.abs(mask).max())
    for outcome, mask in zip(seen, kept, strict=False):  # nothing reads the last one
        np.testing.assert_allclose(np.clip(outcome.logits[:], -32, 32), mask, atol=0.02 * 32)
