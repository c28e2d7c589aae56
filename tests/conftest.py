"""What all tests share: seeds, no network, a cache of their own, golden text, skips by marker."""

import importlib.util
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).resolve().parent / "golden"
_HERE = ("127.0.0.1", "::1", "localhost")

# `pytest --hypothesis-profile=long` looks further, and elsewhere each time.
settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("long", settings.get_profile("quick"), derandomize=False)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden/*.txt from what is seen"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what compares with torch, or with data beside the project, where that is missing."""
    no_torch = importlib.util.find_spec("torch") is None
    for item in items:
        if no_torch and item.get_closest_marker("parity"):
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))
        shared = item.get_closest_marker("shared")
        folders = ("golden", *shared.args) if shared else ()
        if not all((ROOT.parent / "shared" / name).is_dir() for name in folders):
            item.add_marker(pytest.mark.skip(reason="the shared reference data is missing"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled graphs of the tests are not kept where the user's are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAMGRAPH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test may talk to this machine only."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in _HERE:
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def golden_text(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden_text(name, text)`` compares `text` with tests/golden/`name`.txt.

    With `--update-golden` the file is written instead, and a review sees the difference.
    """
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run pytest with --update-golden, and read it"
        assert text + "\n" == path.read_text(encoding="utf-8")

    return check
