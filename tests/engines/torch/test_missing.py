"""Torch is an extra: nothing else needs it, and where it is missing the message says so."""

import subprocess
import sys

import pytest

from samgraph.engines import find_engine
from samgraph.errors import EngineError, OptionError
from samgraph.runtime import CompileOptions, Session


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where torch is not installed."""
    for name in [name for name in sys.modules if name.startswith("samgraph.engines.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)


def test_neither_the_package_nor_the_other_engines_import_torch() -> None:
    code = (
        "import sys, samgraph; from samgraph.engines import find_engine; "
        "from samgraph.runtime import Session; Session('cpu'); find_engine('reference'); "
        "print('torch' in sys.modules)"
    )

    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert child.stdout.strip() == "False"


@pytest.mark.usefixtures("no_torch")
def test_the_engine_without_torch_says_what_to_install() -> None:
    with pytest.raises(EngineError) as caught:
        find_engine("torch")

    lines = str(caught.value).splitlines()
    assert lines[0] == "engine `torch` cannot be loaded"
    assert lines[-1] == "  hint: pip install samgraph[torch]"


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize("engine", [None, "torch"])
@pytest.mark.parametrize(
    ("gpus", "hint"),
    [(1, 'pip install samgraph[torch], or use device="cpu"'), (0, 'use device="cpu"')],
)
def test_cuda_without_torch_says_what_to_install_if_there_is_a_gpu(
    engine: str | None, gpus: int, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samgraph.engines.devices._cuda_devices", lambda: gpus)
    with pytest.raises(EngineError) as caught:
        Session("cuda", CompileOptions(engine=engine, cache=False))

    lines = str(caught.value).splitlines()
    assert lines[0] == "device `cuda` cannot be used here"
    assert lines[-1] == f"  hint: {hint}"


@pytest.mark.parametrize("engine", ["openvino", "reference"])
def test_an_engine_that_has_no_cuda_is_refused_for_it(engine: str) -> None:
    with pytest.raises(OptionError) as caught:
        Session("cuda", CompileOptions(engine=engine, cache=False))

    assert str(caught.value) == (
        f"engine `{engine}` does not run on `cuda`\n"
        "  expected: torch\n"
        '  hint: use device="cpu", or leave the engine to be chosen'
    )
