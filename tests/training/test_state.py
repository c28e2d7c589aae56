"""The state of training is whole or not there, whenever the program is killed."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from training import state
from training.state import load_state, save_state

WEIGHTS = {f"w{i}": np.full((1000, 10), i, np.float32) for i in range(7)}


def _same(folder: Path, step: int) -> None:
    found = load_state(folder)
    assert found is not None
    arrays, where = found
    assert where["step"] == step
    assert arrays.keys() == WEIGHTS.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, WEIGHTS[name])


def test_a_state_is_read_back(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    save_state(tmp_path, WEIGHTS, {"stage": "masks", "step": 5})
    _same(tmp_path, 5)
    save_state(tmp_path, WEIGHTS, {"stage": "masks", "step": 6})
    _same(tmp_path, 6)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_files_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FILE_LIMIT", 100_000)
    monkeypatch.setattr(state, "LARGEST", 50_000)
    save_state(tmp_path, WEIGHTS, {"stage": "masks", "step": 5})
    files = list((tmp_path / "state").glob("*.safetensors"))
    assert len(files) == 4
    assert max(path.stat().st_size for path in files) < 100_000
    _same(tmp_path, 5)


def test_a_kill_at_any_moment_loses_at_most_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_state(tmp_path, WEIGHTS, {"stage": "masks", "step": 5})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("save_file", "os.fsync"):
        monkeypatch.setattr(f"training.state.{step}", killed)
        with pytest.raises(KeyboardInterrupt):
            save_state(tmp_path, WEIGHTS, {"stage": "masks", "step": 6})
        monkeypatch.undo()
        _same(tmp_path, 5)

    save_state(tmp_path, WEIGHTS, {"stage": "masks", "step": 6})
    (tmp_path / "state").rename(tmp_path / "state.old")  # between the two renames
    _same(tmp_path, 6)
    shutil.rmtree(tmp_path / "state.old")
    assert load_state(tmp_path) is None
