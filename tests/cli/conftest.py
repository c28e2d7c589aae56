"""A folder with images and a model, and a way to run commands in it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from PIL import Image

from samgraph.cli.options import ModelChoice
from tests.cli.running import Outcome, call, weights_file
from tests.golden import scenes


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights_file(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: `a.png`, `b.png`, and `bad.png`, which is no image."""
    for number, name in enumerate(("a.png", "b.png")):
        Image.fromarray(scenes.frame(4 * number)).save(tmp_path / name)
    (tmp_path / "bad.png").write_text("no image")
    monkeypatch.chdir(tmp_path)
    return tmp_path


_load_once = cache(ModelChoice.load)


@pytest.fixture
def samgraph(monkeypatch: pytest.MonkeyPatch, weights: Path) -> Callable[..., Outcome]:
    """``samgraph("segment", "a.png", ...)`` runs the command with the small model, loaded once."""
    monkeypatch.setattr(ModelChoice, "load", lambda choice: _load_once(choice))

    def command(*arguments: object, stdin: bytes = b"") -> Outcome:
        name, *rest = arguments
        return call(monkeypatch, [name, "--model", weights, *rest], stdin)

    return command
