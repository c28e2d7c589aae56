"""Compiling when a graph is first run: threads, profiles, and the file next to the weights."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError
from samgraph.graph import Graph
from samgraph.models.loading import load_model, save_model
from samgraph.runtime import CompiledGraph, CompileOptions, Profile, Session
from samgraph.runtime.ahead import Ahead
from tests.models.sam2.bench import config_of, known_weights

CONFIG = config_of({"config": "test"})


def model(**options: Any) -> Any:
    small = CONFIG.at_size(128)
    return load_model(known_weights(CONFIG, 100), config=small, **options)


def test_compiling_one_graph_does_not_hold_up_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first graph is compiled only after the second has been compiled and run."""
    slow, ran = model(options=CompileOptions(threads=1, cache=False)), threading.Event()
    compile_ = Session.compile
    counts: dict[str, int] = {}

    def counted(self: Session, graph: Graph, *rest: object) -> CompiledGraph:
        counts[graph.name] = counts.get(graph.name, 0) + 1
        if graph.name == "prepare_image":
            assert ran.wait(60), "the other graph was held up"
        return compile_(self, graph, *rest)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(Session, "compile", counted)
    mask = np.zeros((2, 1, 128, 128), np.float32)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(lambda: slow.graphs["prepare_image"]) for _ in range(2)]
        logits = slow.graphs["mask_prompt"].run(mask=mask)["logits"]
        ran.set()
        found = [future.result() for future in waiting]

    assert logits.shape == (2, 1, 32, 32)
    assert found[0] is found[1]
    assert counts == {"prepare_image": 1, "mask_prompt": 1}


def test_a_graph_that_cannot_be_compiled_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    once = model(options=CompileOptions(threads=1, cache=False))
    with monkeypatch.context() as patch:
        patch.setattr(Session, "compile", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _ = once.graphs["mask_prompt"]

    assert isinstance(once.graphs["mask_prompt"], CompiledGraph)


def test_the_decoder_stays_in_fp32_whatever_the_profile_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("samgraph.engines.openvino.bf16._probe", lambda: 2.0)
    half = model(profile=Profile("half", precision="bf16"), device="cpu")

    assert ", bf16" in half.session.reason
    assert ", fp32" in half.session_for("decode").reason
    assert ", bf16" in half.session_for("image_encoder").reason
    plain = model(device="cpu")
    assert plain.session_for("decode") is plain.session


def test_a_model_is_loaded_with_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "small.safetensors"
    save_model(model(), path)
    beside = tmp_path / "small.profiles.toml"
    beside.write_text(
        '[profile.default]\nwithout = ["maps_to_tokens"]\n[profile.stages]\nstages = "split"\n',
        encoding="utf-8",
    )

    def profile_of(**options: Any) -> Profile:
        return load_model(path, **options).session.options.chosen_profile

    assert profile_of().without == ("maps_to_tokens",)
    assert profile_of(profile="stages").stages == "split"
    assert profile_of(profile="plain").name == "plain"
    assert profile_of(profile=Profile("mine")).name == "mine"
    assert profile_of(profile=f"{beside}#stages").name == "stages"
    assert profile_of(options=CompileOptions()).name == "fused"
    with pytest.raises(OptionError, match="there is no profile `fast`"):
        load_model(path, profile="fast")
    assert model().session.options.chosen_profile.name == "fused"


def test_the_encoder_is_restored_ahead_but_never_that_of_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is replaced by one of the same size and time, as only a forger would."""
    path, taken = tmp_path / "model.safetensors", []
    take = Ahead.take

    def watched(self: Ahead, graph: str, *rest: Any) -> Any:
        found = take(self, graph, *rest)
        taken.extend([graph] if found is not None else [])
        return found

    monkeypatch.setattr(Ahead, "take", watched)
    image = np.random.default_rng(0).standard_normal((1, 3, 128, 128)).astype(np.float32)

    def embedding(cache: str) -> bytes:
        options = CompileOptions(threads=1, cache_dir=tmp_path / cache)
        features = load_model(path, device="cpu", options=options).encode(image)
        found: bytes = np.asarray(features.maps["embedding"]).tobytes()
        return found

    save_model(model(), path)
    status = path.stat()
    first, second = embedding("kept"), embedding("kept")
    assert first == second
    assert taken == ["image_encoder"]

    save_model(load_model(known_weights(CONFIG, 101), config=CONFIG.at_size(128)), path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    third = embedding("kept")
    assert taken == ["image_encoder"]
    assert third == embedding("fresh") != first
