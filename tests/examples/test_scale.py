"""The examples for Ray Data and Daft run as they are, where these are installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.checkpoint.built_in import needs_built_in
from tests.golden import scenes

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"ray_data": ("ray", "pandas", "pyarrow"), "daft_batches": ("daft", "pyarrow")}


def missing(name: str) -> list[str]:
    return [package for package in PACKAGES[name] if importlib.util.find_spec(package) is None]


@needs_built_in
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                *([pytest.mark.ray] if name == "ray_data" else []),
                pytest.mark.skipif(
                    bool(missing(name)), reason=f"missing: pip install {' '.join(PACKAGES[name])}"
                ),
            ],
        )
        for name in PACKAGES
    ],
)
def test_an_example_writes_a_table_of_masks(name: str, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.png") for number in range(2)]
    for number, path in enumerate(paths):
        Image.fromarray(scenes.frame(number)).save(path)
    out = tmp_path / "out"
    script = ROOT / "examples" / "scale" / f"{name}.py"

    done = subprocess.run(
        [sys.executable, script, out, *paths],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_USAGE_STATS_ENABLED": "0"},
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()[-2000:]
    from pyarrow import parquet

    from samgraph.scale import decode_masks

    rows = [
        {**row, **(row.get("masks") or {})}
        for file in sorted(out.rglob("*.parquet"))
        for row in parquet.ParquetFile(file).read().to_pylist()
    ]
    assert sorted(row["path"] for row in rows) == paths
    for row in rows:
        assert row["error"] == ""
        masks = decode_masks(row["rle"], row["height"], row["width"])
        assert masks.shape == (1, *scenes.frame(0).shape[:2])
        assert np.isfinite(row["score"]).all()
