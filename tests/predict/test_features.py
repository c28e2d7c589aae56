"""Embeddings: saved by one process, loaded by another, and refused where they do not belong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import checkpoint
from samgraph.errors import ImageError, OutputError
from samgraph.predict.features import Embedding, fingerprint
from samgraph.predict.image.encoded import encode_image
from tests.predict.models import small_model
from tests.predict.pictures import SEED, encoded, model, picture

KEY = "samgraph.embedding"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "scene.safetensors"
    encoded().embedding.save(path)
    return path


def test_a_saved_embedding_gives_the_same_masks(saved: Path) -> None:
    image = model().image(Embedding.load(saved))

    assert image.name == "scene.png"
    assert image.size_hw == encoded().size_hw
    found, expected = (one.predict(points=[(40, 50)]) for one in (image, encoded()))
    assert np.array_equal(found.masks, expected.masks)
    assert np.array_equal(found.logits, expected.logits)


def test_an_image_with_its_embedding_is_not_encoded_again(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samgraph.predict.image.encoded.encode_pixels", None)

    image = model().image(picture(), embedding=saved)

    assert image.predict(points=[(40, 50)]).overlay().shape == picture().shape


def test_another_process_loads_it(saved: Path) -> None:
    code = (
        "import sys; from samgraph.predict.features import Embedding;"
        "print(Embedding.load(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True
    )

    assert done.stdout == "<embedding of scene.png, 160x120, 1 MB>\n"


def test_other_weights_refuse_it(saved: Path) -> None:
    with pytest.raises(ImageError, match="was made by another model"):
        encode_image(small_model(SEED + 1), Embedding.load(saved))


def test_an_image_of_another_size_refuses_it(saved: Path) -> None:
    with pytest.raises(ImageError, match="is not that of"):
        model().image(picture()[:100], embedding=saved)


def test_the_fingerprint_is_that_of_the_weights() -> None:
    assert fingerprint(small_model(SEED)) == encoded().embedding.fingerprint
    assert fingerprint(small_model(SEED)) != fingerprint(small_model(SEED + 1))


@pytest.mark.parametrize("damage", ["missing", "text", "cut", "checkpoint", "nan", "far"])
def test_a_file_that_holds_none_is_one_clear_error(
    damage: str, saved: Path, tmp_path: Path
) -> None:
    if damage == "missing":
        saved.unlink()
    elif damage == "text":
        saved.write_text("hello")
    elif damage == "cut":
        saved.write_bytes(saved.read_bytes()[:-5])
    elif damage in ("nan", "far"):
        data = bytearray(saved.read_bytes())
        data[-4:] = np.float32("nan" if damage == "nan" else 1e30).tobytes()
        saved.write_bytes(data)
    else:
        checkpoint.save(saved, {"a": np.zeros(3, np.float32)})

    with pytest.raises(ImageError, match="embedding"):
        Embedding.load(saved)


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        encoded().embedding.save(tmp_path / "missing" / "scene.safetensors")


HOSTILE: dict[str, dict[str, Any]] = {
    "no size": {"size_hw": [0, 10]},
    "a size of text": {"size_hw": "64"},
    "a size of floats": {"size_hw": [1.5, 2.5]},
    "three sides": {"size_hw": [1, 2, 3]},
    "sides that no image has": {"size_hw": [10**9, 10**9]},
    "a name of numbers": {"name": 7},
    "a name without end": {"name": "a" * 5000},
    "an unknown field": {"max_pixels": 10**12},
    "no number": {"size_hw": [float("inf"), 1]},
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_record_that_was_tampered_with_is_refused(name: str, saved: Path) -> None:
    found = checkpoint.read(saved)
    about = {**json.loads(found.metadata[KEY]), **HOSTILE[name]}
    checkpoint.save(saved, found.tensors, metadata={KEY: json.dumps(about)})

    with pytest.raises(ImageError, match="holds no embedding"):
        Embedding.load(saved)


@pytest.mark.parametrize("text", ["[" * 100_000, "null", '{"name": 1, "name": 2}', "", "NaN"])
def test_text_that_is_no_record_is_refused(text: str, saved: Path) -> None:
    checkpoint.save(saved, checkpoint.read(saved).tensors, metadata={KEY: text})

    with pytest.raises(ImageError, match="holds no embedding"):
        Embedding.load(saved)


TENSORS: dict[str, dict[str, Any]] = {
    "unequal sides": {"fine_0": np.zeros((1, 32, 64, 65), np.float32)},
    "no sides": {"fine_0": np.zeros((1, 32, 0, 0), np.float32)},
    "two images": {"embedding": np.zeros((2, 256, 16, 16), np.float32)},
    "no rank": {"embedding": np.zeros((), np.float32)},
    "whole numbers": {"fine_1": np.zeros((1, 64, 32, 32), np.int32)},
    "infinity": {"fine_1": np.full((1, 64, 32, 32), np.inf, np.float32)},
    "one more": {"more": np.zeros(3, np.float32)},
}


@pytest.mark.parametrize("name", sorted(TENSORS))
def test_maps_that_are_not_those_of_one_image_are_refused(name: str, saved: Path) -> None:
    found = checkpoint.read(saved)
    checkpoint.save(saved, {**found.tensors, **TENSORS[name]}, metadata=found.metadata)

    with pytest.raises(ImageError, match="embedding"):
        Embedding.load(saved)


def test_an_embedding_keeps_to_the_limit_of_pixels(saved: Path) -> None:
    found = checkpoint.read(saved)
    about = {**json.loads(found.metadata[KEY]), "size_hw": [60_000, 60_000]}
    checkpoint.save(saved, found.tensors, metadata={KEY: json.dumps(about)})

    with pytest.raises(ImageError, match="60,000 x 60,000 pixels"):
        model().image(Embedding.load(saved))
