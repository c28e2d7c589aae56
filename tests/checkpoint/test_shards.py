"""Folders and checkpoints of several files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph.checkpoint import read, save
from samgraph.errors import CheckpointError

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, np.float16)


def write(folder: Path, weight_map: Any = None) -> Path:
    """Two shards and their index."""
    save(folder / FIRST, {"a": A}, metadata={"format": "pt"})
    save(folder / SECOND, {"b": B}, "fp16")
    weight_map = {"a": FIRST, "b": SECOND} if weight_map is None else weight_map
    index = {"metadata": {"total_size": 32}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("name", ["", INDEX])
def test_shards_are_read_as_one(tmp_path: Path, name: str) -> None:
    found = read(write(tmp_path) / name)

    assert found.metadata == {"format": "pt"}
    assert found.tensors.keys() == {"a", "b"}
    assert np.array_equal(found.tensors["a"], A)
    assert found.tensors["b"].dtype == np.float16


def test_an_index_is_told_from_a_header_that_begins_alike(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text('{"meta":{}, "weight_map": {"a": "a.safetensors"}}')
    save(tmp_path / "a.safetensors", {"a": A})

    assert read(tmp_path / INDEX).tensors["a"].shape == (2, 3)


@pytest.mark.parametrize("name", ["model.safetensors", "weights.pt", "Any.SafeTensors"])
def test_a_folder_is_read_from_its_only_checkpoint(tmp_path: Path, name: str) -> None:
    save(tmp_path / name, {"a": A})
    (tmp_path / "config.json").write_text("{}")

    assert np.array_equal(read(tmp_path).tensors["a"], A)


def test_a_usual_name_wins_over_others(tmp_path: Path) -> None:
    save(tmp_path / "training.safetensors", {"b": B})
    save(tmp_path / "model.safetensors", {"a": A})

    assert read(tmp_path).tensors.keys() == {"a"}


@pytest.mark.parametrize("names", [[], ["a.pt", "b.pt"], ["a.pt", "b.pt", "c.pt", "d.pt"]])
def test_a_folder_of_none_or_many_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        save(tmp_path / name, {"a": A})

    with pytest.raises(CheckpointError, match="is not one checkpoint") as caught:
        read(tmp_path)

    assert ("`a.pt`, `b.pt`" if names else "no checkpoint in it") in str(caught.value)
    assert ("and 1 more" in str(caught.value)) == (len(names) == 4)


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ([], "`weight_map` is not an object"),
        ({}, "holds no weights"),
        ({"a": 3}, "is not a text"),
        ({"a": "../model.safetensors"}, "not the name of a file beside it"),
        ({"a": "/etc/passwd"}, "not the name of a file beside it"),
        ({"a": "c:model.safetensors"}, "not the name of a file beside it"),
        ({"a": "passwd"}, "not the name of a file beside it"),
        ({"a": "gone.safetensors"}, "1 of the 1 shards of"),
        ({"a": FIRST, "b": FIRST}, "`b` is missing"),
        ({"a": SECOND}, "`a` is missing"),
        ({"a": FIRST, "c": SECOND}, "`b` is in it, which the index does not say"),
        ({"../a": FIRST}, "looks like a path"),
        ({f"t{i}": f"{i}.safetensors" for i in range(300)}, "names 300 shards"),
        ({"a": INDEX}, "not the name of a file beside it"),
    ],
)
def test_a_wrong_index_is_refused(tmp_path: Path, weight_map: Any, words: str) -> None:
    write(tmp_path, weight_map)

    with pytest.raises(CheckpointError) as caught:
        read(tmp_path)

    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["{", "{}", '{"weight_map": {"a": "x", "a": "y"}}', "[" * 9999])
def test_what_is_no_index_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)

    with pytest.raises(CheckpointError):
        read(tmp_path)


def test_a_shard_is_not_an_index_in_turn(tmp_path: Path) -> None:
    write(tmp_path, {"a": "a.bin"})
    (tmp_path / "a.bin").write_text(json.dumps({"weight_map": {"a": "a.bin"}}))

    with pytest.raises(CheckpointError):
        read(tmp_path)


def test_missing_shards_are_named_before_any_is_read(tmp_path: Path) -> None:
    names = [f"model-{number}.safetensors" for number in range(6)]
    write(tmp_path, {str(number): name for number, name in enumerate(names)})
    (tmp_path / names[0]).write_bytes(b"damaged, but first the others must be fetched")

    with pytest.raises(CheckpointError) as caught:
        read(tmp_path)

    assert str(caught.value) == (
        f"5 of the 6 shards of `{INDEX}` are missing\n"
        f"  got:      `{names[1]}`, `{names[2]}`, `{names[3]}` and 2 more\n"
        "  hint: fetch all files of the model again"
    )
