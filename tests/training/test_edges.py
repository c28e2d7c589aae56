"""What enlarges masks, by itself: the same answers as the whole decoder, and only it learns."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from samgraph.engines.torch import Evaluator  # noqa: E402
from tests.models.sisters import SMALL_NANO, small_weights  # noqa: E402
from tests.tolerances import FUSED_GRAPH  # noqa: E402
from training import edges  # noqa: E402
from training.fixed import evaluator  # noqa: E402
from training.student import Student  # noqa: E402

CONFIG = SMALL_NANO


def prompts(count: int) -> dict[str, Any]:
    random = torch.Generator().manual_seed(1)
    side, flag = CONFIG.mask_size, torch.ones(count, dtype=torch.bool)
    return {
        "points": torch.rand(count, 2, 2, generator=random) * CONFIG.image_size,
        "labels": torch.tensor([[1, 0]] * count),
        "mask": torch.randn(count, 1, side, side, generator=random),
        "has_mask": torch.arange(count) % 2 == 1,
        "no_memory": flag,
        "multimask": flag,
    }


def answers(weights: dict[str, Any], count: int = 4) -> edges.Answers:
    image = torch.randn(1, 3, CONFIG.image_size, CONFIG.image_size)
    arrays = {name: weight.detach().numpy() for name, weight in weights.items()}
    maps = evaluator(edges.before(CONFIG), arrays, "cpu")({"image": image})
    embedding = maps.pop("embedding").expand(count, -1, -1, -1)
    found = evaluator(edges.attended(CONFIG), arrays, "cpu")(
        {"embedding": embedding, **prompts(count)}
    )
    targets = torch.zeros(count, CONFIG.mask_size, CONFIG.mask_size, dtype=torch.uint8)
    targets[:, 8:30, 8:30] = 255
    half = {name: value.half() for name, value in maps.items()}
    return edges.Answers(half, found["tokens"], found["seen"].half(), targets, found["multimask"])


def own_weights() -> dict[str, Any]:
    return {name: torch.from_numpy(np.array(a)) for name, a in small_weights(CONFIG).items()}


def test_the_parts_together_are_the_decoder() -> None:
    arrays = small_weights(CONFIG)
    image = torch.randn(1, 3, CONFIG.image_size, CONFIG.image_size)
    student, given = Student(CONFIG, arrays, "cpu"), prompts(3)
    asked = given["points"], given["labels"]
    with torch.no_grad():
        features = {k: v.expand(3, -1, -1, -1) for k, v in student.encode(image).items()}
        given["has_mask"] = given["has_mask"] | True
        expected = student.decode(features, *asked, given["mask"], multimask=given["multimask"])

        maps = evaluator(edges.before(CONFIG), arrays, "cpu")({"image": image})
        given["embedding"] = maps.pop("embedding").expand(3, -1, -1, -1)
        found = evaluator(edges.attended(CONFIG), arrays, "cpu")(given)
        answer = Evaluator(edges.heads(CONFIG))(
            {**own_weights(), **found, **edges._repeated(maps, 3)}
        )

    for name in ("masks", "ious"):
        error = (answer[name] - expected[name]).abs().max() / expected[name].abs().max()
        assert error < FUSED_GRAPH


def test_only_what_enlarges_masks_learns() -> None:
    weights = own_weights()
    known = [answers(weights)]
    before = {name: weight.clone() for name, weight in weights.items()}

    lines = list(edges.learn(CONFIG, weights, known, lambda step: step / 200, 0))

    first, second, last = lines
    assert second["loss"] < 0.9 * first["loss"]
    assert last == {"step": 200}
    changed = {name for name in weights if not torch.equal(weights[name], before[name])}
    assert all(name.startswith(tuple(edges.RATES)) for name in changed)
    assert {name for name in changed if ".refinement." in name}
    assert not {name for name in weights if name.startswith(tuple(edges.RATES))} - changed
