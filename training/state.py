"""The state of training: a folder of small files, complete or not there at all."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

FILE_LIMIT = 16_000_000
LARGEST = 4_300_000  # of one tensor


def save_state(folder: Path, arrays: dict[str, Any], where: dict[str, Any]) -> None:
    """Write a whole new state, then put it in the place of the old one."""
    fresh, kept, old = folder / "state.new", folder / "state", folder / "state.old"
    for path in (fresh, old):
        shutil.rmtree(path, ignore_errors=True)
    fresh.mkdir(parents=True)
    shard: dict[str, Any] = {}
    number = 0
    for i, (key, array) in enumerate(sorted(arrays.items())):
        shard[key] = np.ascontiguousarray(array, dtype=np.float32)
        if sum(a.nbytes for a in shard.values()) > FILE_LIMIT - LARGEST or i == len(arrays) - 1:
            save_file(shard, fresh / f"weights-{number}.safetensors")
            number, shard = number + 1, {}
    (fresh / "where.json").write_text(json.dumps({**where, "files": number}))
    for path in fresh.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if kept.exists():
        kept.rename(old)
    fresh.rename(kept)
    shutil.rmtree(old, ignore_errors=True)


def load_state(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The arrays and where they stand, or None at the very start."""
    for name in ("state", "state.old", "state.new"):  # the last two after a kill in mid-rename
        if (folder / name / "where.json").exists():
            where = json.loads((folder / name / "where.json").read_text())
            arrays: dict[str, Any] = {}
            for number in range(where["files"]):
                arrays |= load_file(folder / name / f"weights-{number}.safetensors")
            return arrays, where
    return None
