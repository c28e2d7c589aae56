"""The built-in model: the default, loaded by name, and refused when damaged."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import samgraph
from samgraph.checkpoint import builtin, read
from samgraph.checkpoint.builtin import NANO, is_built_in
from samgraph.errors import CheckpointError
from samgraph.models.loading import load_model
from samgraph.runtime import CompileOptions
from tests.checkpoint.built_in import needs_built_in, put_in_place
from tests.predict.models import small_model


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return put_in_place(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["samgraph-nano", "nano", " SAMGRAPH_Nano "])
@pytest.mark.usefixtures("file")
def test_it_is_loaded_by_name_in_float32(name: str) -> None:
    model = samgraph.load(name)

    expected = small_model(14)
    assert model.config == expected.config
    for key, value in expected.weights.items():
        assert model.core.weights[key].dtype == np.float32
        np.testing.assert_array_equal(model.core.weights[key], value.astype(np.float16))


@pytest.mark.usefixtures("file")
def test_it_is_what_is_loaded_without_a_name() -> None:
    model = samgraph.load()

    np.testing.assert_array_equal(
        model.core.absent_pointer, samgraph.load("samgraph-nano").core.absent_pointer
    )


@pytest.mark.usefixtures("file")
def test_it_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMGRAPH_OFFLINE", "1")
    monkeypatch.setattr("socket.socket.connect", None)

    assert samgraph.load().config == small_model(14).config


@pytest.mark.usefixtures("file")
def test_settings_are_kept() -> None:
    model = samgraph.load(image_size=128, options=CompileOptions(threads=1))

    assert model.config.image_size == 128
    assert model.core.session.options.threads == 1


@pytest.mark.usefixtures("file")
def test_a_folder_of_the_same_name_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "samgraph-nano").mkdir()
    monkeypatch.chdir(tmp_path)

    assert samgraph.load("samgraph-nano").config == small_model(14).config


@pytest.mark.parametrize("source", ["./samgraph-nano", "samgraph-nano.safetensors", "tiny", None])
def test_paths_and_other_names_are_not_it(source: str | None) -> None:
    assert not is_built_in(source)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (cut_short, r"the built-in model is damaged.*\n  got: +[\d,]+ bytes\n  expected: [\d,]+"),
        (flip_a_bit, r"the built-in model is damaged.*\n  got: +sha256 [0-9a-f]{64}\n"),
        (remove, "the built-in model is missing\n"),
        (replace_by_a_folder, "the built-in model cannot be read\n"),
    ],
)
def test_a_damaged_file_says_to_reinstall(
    file: Path, harm: Callable[[Path], None], says: str
) -> None:
    harm(file)

    with pytest.raises(CheckpointError) as caught:
        samgraph.load()

    assert re.match(says, str(caught.value))
    assert "hint: reinstall samgraph: `pip install" in str(caught.value)


def test_an_unknown_name_lists_it() -> None:
    with pytest.raises(CheckpointError) as caught:
        samgraph.load("samgraph-nana")

    assert "expected: samgraph-nano, sam2-tiny" in str(caught.value)
    assert "hint: did you mean `samgraph-nano`?" in str(caught.value)


@needs_built_in
def test_the_file_of_the_package_is_the_one_in_the_table() -> None:
    path = builtin.built_in_path()

    found = read(path)

    assert path.stat().st_size == NANO.size_bytes <= 30e6
    assert {array.dtype for array in found.tensors.values()} == {np.dtype(np.float16)}
    assert sum(array.size for array in found.tensors.values()) == NANO.parameters
    assert set(NANO.quality) == {"box", "1 click", "5 clicks", "J"}


@needs_built_in
def test_every_tensor_of_the_package_fits_its_config() -> None:
    """`load` trusts the hash; here a path is given, so that every name and shape is compared."""
    model = load_model(builtin.built_in_path())

    assert model.config.name == NANO.name
