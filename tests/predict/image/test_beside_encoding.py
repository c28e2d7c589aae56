"""What points need is compiled while the first image is encoded: once, and quietly."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from samgraph.errors import EngineError
from samgraph.models.compiled import CompiledModel
from samgraph.models.loading import load_model
from samgraph.predict.image.encoded import encode_image
from samgraph.runtime import CompileOptions
from tests.models.sam2.bench import config_of, known_weights

PICTURE = np.zeros((96, 128, 3), np.uint8)
NEEDED = {"prepare_image", "decode_prepared for one"}


@pytest.fixture
def model() -> Any:
    config = config_of({"config": "test"})
    options = CompileOptions(threads=1, cache=False)
    return load_model(
        known_weights(config, 100), config=config.at_size(128), device="cpu", options=options
    )


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, threading.Thread]]:
    """The graphs that were compiled, and in which thread."""
    found: list[tuple[str, threading.Thread]] = []
    compile_: Callable[..., Any] = CompiledModel._compile

    def counted(self: CompiledModel, name: str, for_one: bool) -> Any:
        found.append((name, threading.current_thread()))
        return compile_(self, name, for_one)

    monkeypatch.setattr(CompiledModel, "_compile", counted)
    return found


def test_the_first_click_compiles_nothing(
    model: Any, compiled: list[tuple[str, threading.Thread]]
) -> None:
    image = encode_image(model, PICTURE)
    names = sorted(name for name, _ in compiled)
    assert names == ["decode_prepared", "image_encoder", "prepare_image"]

    image.predict(points=[(30, 40)])

    assert len(compiled) == 3


def test_it_is_done_in_a_thread_of_its_own_and_only_once(
    model: Any, compiled: list[tuple[str, threading.Thread]]
) -> None:
    here = threading.current_thread()
    with model.compiling_for_prompts():
        pass
    assert model._compiled.keys() == NEEDED
    assert all(thread is not here for _, thread in compiled)
    assert not any(thread.is_alive() for _, thread in compiled)

    with model.compiling_for_prompts():
        pass

    assert len(compiled) == 2


def test_what_goes_wrong_is_raised_where_it_is_run(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: CompiledModel, name: str, for_one: bool) -> Any:
        raise EngineError("no")

    monkeypatch.setattr(CompiledModel, "_compile", refuse)

    with model.compiling_for_prompts():
        pass

    with pytest.raises(EngineError, match="no"):
        model.compiled("prepare_image")


def test_on_other_devices_nothing_is_compiled_meanwhile(
    model: Any, compiled: list[tuple[str, threading.Thread]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        device = type("Cuda", (), {"kind": "cuda"})

    monkeypatch.setattr(model, "session", Elsewhere())

    with model.compiling_for_prompts():
        pass

    assert compiled == []
