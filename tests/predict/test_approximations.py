"""Approximations by name: never a default, used where asked for, recorded in sessions."""

import pickle
from collections.abc import Callable
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samgraph
from samgraph import models
from samgraph.errors import CheckpointError, OptionError, PromptError
from samgraph.predict.model import Model
from samgraph.predict.video.few_memories import FewMemories
from samgraph.predict.video.policies.table import DEFAULT, POLICIES
from samgraph.predict.video.policy import Position, ReferencePolicy
from samgraph.runtime import APPROXIMATIONS, CompileOptions
from tests.golden import scenes
from tests.models import toy_family
from tests.models.sam2.bench import config_of, known_weights
from tests.tolerances import SAME_DECODER

FRAMES = 5


@cache
def model(approximation: str | None = None) -> Model:
    config = config_of({"config": "test"})
    return samgraph.load(
        known_weights(config, 100),
        config=config.at_size(256 if approximation == "small-input" else 128),
        approximation=approximation,
        threads=2,
    )


@cache
def scores(approximation: str | None) -> np.ndarray:
    video = model(approximation).video(scenes.frames(FRAMES))
    video.add(frame=0, object=1, points=[(40, 50)])
    return np.array([frame.object_scores[0] for frame in video.track()])


def test_nothing_is_approximated_unless_asked() -> None:
    assert signature(samgraph.load).parameters["approximation"].default is None
    assert CompileOptions().chosen_approximation is None
    assert model().config.memory_pool == 1


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != DEFAULT])
@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_every_policy_works_with_it(name: str, policy: str) -> None:
    """On the first tracked frame all policies read the same memory."""
    found = []
    for chosen in (DEFAULT, policy):
        video = model(name).video(scenes.frames(2), policy=chosen)
        video.add(frame=0, object=1, points=[(40, 50)])
        found.append([frame.low_logits for frame in video.track()][1])

    usual, other = found
    np.testing.assert_allclose(usual, other, atol=SAME_DECODER)
    assert len(video.states[1].history.observed) == 1


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_a_video_is_tracked_with_it(name: str) -> None:
    """The small model is for 256 pixels, and is exact at 128 here."""
    exact, found = scores(None), scores(name)

    assert np.isfinite(found).all()
    assert np.array_equal(found, exact) == (name == "small-input")
    assert name in repr(model(name))


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_a_session_says_how_it_was_made(name: str, tmp_path: Path) -> None:
    path = tmp_path / "stream.safetensors"
    stream = model(name).stream()
    stream.step(scenes.frames(FRAMES)[0])
    stream.add(object=1, points=[(40, 50)])
    stream.save(path)

    assert model(name).resume(path).objects == (1,)
    with pytest.raises(CheckpointError, match="made with another approximation") as raised:
        model().resume(path)
    assert (raised.value.got, raised.value.expected) == (name, "exact")


def test_memory_of_another_approximation_is_not_taken_over() -> None:
    with pytest.raises(PromptError, match="means nothing to another"):
        model().stream().remember(model("pooled-memory").stream())


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_what_is_saved_or_sent_is_the_model_itself(name: str, tmp_path: Path) -> None:
    model(name).save(tmp_path / "model.safetensors")

    again: Any = pickle.loads(pickle.dumps(model(name)))

    assert samgraph.load(tmp_path / "model.safetensors").config == samgraph_config(name)
    assert again.config == model(name).config
    assert again.core.session.options.approximation == name


def samgraph_config(name: str) -> Any:
    return model().config.at_size(256 if name == "small-input" else 128)


@pytest.mark.parametrize("ask", [samgraph.load, lambda **given: CompileOptions(**given)])
def test_an_unknown_name_is_refused(ask: Callable[..., Any]) -> None:
    with pytest.raises(OptionError, match="no approximation `pooled`") as raised:
        ask(approximation="pooled")
    assert raised.value.expected == "pooled-memory"


def test_a_family_refuses_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.FOLDERS, "toy", "tests.models.toy_family")
    weights = {
        "trunk.weight": np.full((toy_family.CHANNELS, 3, 4, 4), 1 / 48, np.float32),
        "head.weight": np.ones((1, toy_family.CHANNELS), np.float32),
    }

    with pytest.raises(OptionError, match="toy has no approximation `pooled-memory`") as raised:
        samgraph.load(weights, approximation="pooled-memory")
    assert raised.value.expected == "few-memories, small-input"


def test_few_memories_reads_prompted_frames_and_the_last_two() -> None:
    policy = ReferencePolicy()
    position, prompted, seen = Position(9), [0, 4], set(range(9))

    few = FewMemories(policy, 2).choose(position, prompted, seen)
    every = policy.choose(position, prompted, seen)

    assert [frame for frame, _, _ in few.masks] == [0, 4, 7, 8]
    assert few.masks == tuple(read for read in every.masks if read[0] in (0, 4, 7, 8))
    assert few.pointers == every.pointers
