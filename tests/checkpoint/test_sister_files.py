"""Published files of the sister models: known by name or hash, never downloaded, never guessed."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import samgraph
from samgraph.checkpoint import Checkpoint, sister_files
from samgraph.checkpoint.sister_files import SISTER_FILES, find_sister, published_name
from samgraph.errors import CheckpointError, SamgraphWarning
from samgraph.models.loading import find_config, recognise


def of_tensors(name: str, path: Path) -> Checkpoint:
    """The tensors of a model, all zero, as if read from a file."""
    family, config = find_config(name)
    shapes = family.weight_shapes(config.smallest())
    tensors = {key: np.broadcast_to(np.float32(0), shape) for key, shape in shapes.items()}
    return Checkpoint(tensors, {}, str(path))


@pytest.mark.parametrize("file", SISTER_FILES, ids=lambda file: file.name)
def test_a_file_is_recognised_by_its_name(file: sister_files.SisterFile, tmp_path: Path) -> None:
    path = tmp_path / file.file
    path.write_bytes(b"")

    family, config = recognise(of_tensors(file.name, path))

    assert config is find_config(file.name)[1]
    assert file.name.startswith("medsam2" if family.name == "sam2" else family.name)
    values = sum(array.size for array in of_tensors(file.name, path).tensors.values())
    assert values == file.parameters


def test_a_file_of_another_name_is_recognised_by_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.pt"
    path.write_bytes(b"weights")
    known = hashlib.sha256(b"weights").hexdigest()
    files = [
        replace(file, sha256=known) if file.name == "efficienttam-s-512x512" else file
        for file in SISTER_FILES
    ]
    monkeypatch.setattr(sister_files, "SISTER_FILES", tuple(files))

    assert recognise(of_tensors("efficienttam-s", path))[1].image_size == 512


@pytest.mark.parametrize("size", ["s", "ti"])
def test_an_ambiguous_file_is_the_plain_one_with_a_warning(size: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.pt"
    path.write_bytes(b"other weights")

    with pytest.warns(SamgraphWarning) as caught:
        config = recognise(of_tensors(f"efficienttam-{size}", path))[1]

    assert config.name == f"efficienttam-{size}"
    text = str(caught[0].message)
    assert all(f"`efficienttam-{size}-{end}`" in text for end in ("1", "2", "512x512"))
    assert text.endswith("give the file the name it was published with, or pass `config=`")
    assert published_name(tmp_path / "missing.pt") is None


def test_a_model_that_is_not_here_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMGRAPH_CACHE", str(tmp_path))

    with pytest.raises(CheckpointError) as caught:
        samgraph.load("efficienttam-ti-2")

    assert "the path of `efficienttam_ti_2.pt`" in str(caught.value)
    assert f"hint: put it into {tmp_path / 'checkpoints'} to load it by name" in str(caught.value)
    assert find_sister("EfficientTAM_S_1") == find_sister("efficienttam-s-1.pt")
    assert find_sister("sam2.1-tiny") is None


@pytest.mark.parametrize("name", ["MedSAM2_US_Heart", "medsam2-us-heart.pt"])
def test_other_files_of_a_model_are_asked_for_by_their_own_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never those of the usual file, which may be there."""
    monkeypatch.setenv("SAMGRAPH_CACHE", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "MedSAM2_latest.pt").write_bytes(b"other weights")
    asked = name.removesuffix(".pt")

    with pytest.raises(CheckpointError) as caught:
        samgraph.load(asked)

    assert caught.value.expected == (
        "the path of `MedSAM2_US_Heart.pt`, from the model page of MedSAM 2's authors"
    )
    found = find_sister(name)
    assert found is not None
    assert (found.name, found.file) == ("medsam2", "MedSAM2_US_Heart.pt")
    usual = find_sister("medsam2")
    assert usual is not None
    assert usual.file == "MedSAM2_latest.pt"


@pytest.mark.parametrize("name", ["MedSAM2_latest.pt", "MedSAM2_CTLesion.pt", "medsam2_2411.pt"])
def test_files_of_medsam2_are_known_by_name_and_tiny_stays_tiny(name: str, tmp_path: Path) -> None:
    path, tiny = tmp_path / name, tmp_path / "my_tiny.pt"
    path.write_bytes(b"")
    tiny.write_bytes(b"")

    config = recognise(of_tensors("sam2.1-tiny", path))[1]

    assert (config.name, config.image_size) == ("medsam2", 512)
    assert recognise(of_tensors("sam2.1-tiny", tiny))[1].image_size == 1024  # and no warning
    assert recognise(of_tensors("sam2.1-small", path))[1].name == "sam2.1-small"  # no tiny at all
