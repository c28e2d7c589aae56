"""The trained weights as the file inside the package: float16, with the config written in it.

    python -m training.export STATE OUT.safetensors
    python -m training.export MODEL.safetensors OUT.safetensors    the same weights, today's config

Mask logits are made steeper on the way out. The student's are shallower than SAM's at an edge, and
SAM's limits of stability, which compare masks at thresholds of -1 and 1, would turn down good masks
("everything" found 0 of 15 drawn shapes; 10 with this). The masks themselves do not change, but
what the memory is made of does (J from masks 0.558, 0.571 and 0.572 at 1.5, 2.5 and 5 times).
"""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samgraph import checkpoint
from samgraph.errors import CheckpointError, SamgraphError
from samgraph.graph import Array
from samgraph.models.nano.config import NANO
from samgraph.models.nano.graphs import GRAPHS
from training.state import load_state

STEEPER = 2.5
_LAST_LAYERS = re.compile(
    r"sam_mask_decoder\.(output_|refinement\.)hypernetworks_mlps\.\d\.layers\.2\."
)


def export(state: Path, out: Path) -> None:
    """Write the model of a finished stage, or a written model with the config of today."""
    if state.is_file():
        weights = dict(checkpoint.read(state).tensors)
    else:
        known = load_state(state)
        if known is None:
            raise SystemExit(f"{state} holds no state")
        weights = steeper(known[0], STEEPER)
    metadata = {"samgraph.config": NANO.to_json(), "samgraph.family": "nano", "format": "pt"}
    checkpoint.save(out, weights, precision="fp16", metadata=metadata)


def read_exported(path: Path) -> dict[str, Array]:
    """The weights of a written model, as they were before they were made steeper."""
    try:
        tensors = checkpoint.read(path).tensors
    except CheckpointError as error:
        raise SystemExit(str(error)) from error
    if {name: array.shape for name, array in tensors.items()} != GRAPHS.weight_shapes(NANO):
        raise SystemExit(f"{path} is not a {NANO.name}: its tensors have other names or shapes")
    arrays = {name: np.asarray(array, np.float32) for name, array in tensors.items()}
    return steeper(arrays, 1 / STEEPER)


def steeper(weights: Mapping[str, Array], factor: float) -> dict[str, Array]:
    """Mask logits multiplied by a factor: the last layers that make them are."""
    return {
        name: array * np.float32(factor) if _LAST_LAYERS.match(name) else array
        for name, array in weights.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    try:
        export(given.state, given.out)
    except SamgraphError as error:
        raise SystemExit(str(error)) from None
