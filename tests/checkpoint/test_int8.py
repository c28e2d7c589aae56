"""Weights in 8 bits."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from samgraph.checkpoint import read, save
from samgraph.checkpoint.int8 import METADATA, SCALE, quantise, restore
from samgraph.errors import CheckpointError

RANDOM = np.random.default_rng(0)
WIDE = RANDOM.standard_normal((64, 96)).astype(np.float32) * np.logspace(-3, 3, 64)[:, None]
WIDE = WIDE.astype(np.float32)


def test_every_row_keeps_its_own_scale(tmp_path: Path) -> None:
    WIDE[7] = 0
    save(tmp_path / "a.safetensors", {"w": WIDE, "bias": WIDE[:, 0], "n": np.arange(3)}, "int8")

    found = read(tmp_path / "a.safetensors").tensors

    assert found.keys() == {"w", "bias", "n"}
    step = np.abs(WIDE).max(1, keepdims=True) / 127
    assert (np.abs(found["w"] - WIDE) <= 0.501 * step).all()
    assert found["bias"].dtype == np.float16
    assert found["n"].tolist() == [0, 1, 2]
    assert (tmp_path / "a.safetensors").stat().st_size < WIDE.size + 2 * 64 * 4 + 600


def test_small_tensors_and_tables_of_one_row_stay_in_float16() -> None:
    table = np.ones((1, 96, 14, 14), np.float32)
    found = quantise({"table": table, "small": WIDE[:4], "large": np.full(3, 1e9, np.float32)})

    assert {name: array.dtype for name, array in found.items()} == {
        "table": np.float16,
        "small": np.float16,
        "large": np.float32,
    }


def test_kernels_and_bfloat16_are_quantised() -> None:
    kernel = RANDOM.standard_normal((32, 8, 7, 7)).astype(ml_dtypes.bfloat16)

    found = restore(quantise({"k": kernel}), "a file")["k"]

    assert found.shape == kernel.shape
    assert np.abs(found - kernel.astype(np.float32)).max() < 0.02


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="8 bits cannot hold"):
        save(tmp_path / "a.safetensors", {"w": np.full((64, 96), np.nan, np.float32)}, "int8")

    assert not list(tmp_path.iterdir())


def test_damaged_scales_are_refused(tmp_path: Path) -> None:
    whole = quantise({"w": WIDE})
    for tensors in (
        {"w": whole["w"]},
        {"w": whole["w"], "w" + SCALE: whole["w" + SCALE][:5]},
        {"w": whole["w"], "w" + SCALE: whole["w" + SCALE].astype(np.float64)},
        {"w": WIDE, "w" + SCALE: whole["w" + SCALE]},
        {"v" + SCALE: whole["w" + SCALE]},
    ):
        with pytest.raises(CheckpointError, match="damaged weights in 8 bits"):
            restore(tensors, "a.safetensors")


def test_without_the_metadata_whole_numbers_are_numbers(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", quantise({"w": WIDE}))
    assert METADATA.keys().isdisjoint(read(tmp_path / "a.safetensors").metadata)
    assert read(tmp_path / "a.safetensors").tensors["w"].dtype == np.int8
