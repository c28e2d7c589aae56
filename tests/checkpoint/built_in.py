"""A small model in the place of the built-in one, for tests of everything but its quality."""

import hashlib
from pathlib import Path

import pytest

from samgraph.checkpoint import builtin
from samgraph.checkpoint.builtin import NANO, BuiltIn
from samgraph.models.sam2.graphs import weight_shapes
from samgraph.predict.model import Model
from tests.predict.models import small_model

IS_THERE = (builtin.FOLDER / NANO.file).is_file()
needs_built_in = pytest.mark.skipif(
    not IS_THERE, reason=f"`{NANO.file}` is not in this checkout: it is added after training"
)


def put_in_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the small model to `folder` and have it taken for the built-in one."""
    path = folder / NANO.file
    core = small_model(14)
    Model(core).save(path, precision="fp16")
    data = path.read_bytes()
    stand_in = BuiltIn(
        NANO.name,
        NANO.file,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        parameters=sum(_size(shape) for shape in weight_shapes(core.config).values()),
        quality={"box": 0.5, "1 click": 0.25, "5 clicks": 0.75},
    )
    monkeypatch.setattr(builtin, "FOLDER", folder)
    monkeypatch.setattr(builtin, "NANO", stand_in)
    return path


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for side in shape:
        size *= side
    return size
