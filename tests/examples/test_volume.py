"""The example of a volume: the drawn organ is found, with the built-in model."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samgraph
from samgraph.checkpoint.builtin import built_in_path
from samgraph.errors import CheckpointError

SOURCE = Path(__file__).parents[2] / "examples" / "volume" / "phantom.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("phantom", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_organ_of_the_phantom_is_found(tmp_path: Path) -> None:
    try:
        built_in_path()
    except CheckpointError as error:
        pytest.skip(str(error))
    phantom = example()
    scan, organ = phantom.drawn_scan()
    np.save(tmp_path / "scan.npy", scan)
    rows, columns = np.nonzero(organ[phantom.KEY])
    box = (columns.min() - 3, rows.min() - 3, columns.max() + 4, rows.max() + 4)

    result = phantom.segmented(samgraph.load(), tmp_path / "scan.npy", box, phantom.KEY)

    assert phantom.overlap(result.mask(), organ) > 0.95
    assert result.slices() == (4, 20)
