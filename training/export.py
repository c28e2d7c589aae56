"""The trained weights as the file inside the package: float16, with the config written in it.

Run it as ``python -m training.export STATE OUT.safetensors``.
"""

import sys
from pathlib import Path

from samgraph import checkpoint
from samgraph.sam2.config import NANO
from training.state import load_state


def export(state: Path, out: Path) -> None:
    """Write the model of a finished stage."""
    known = load_state(state)
    if known is None:
        raise SystemExit(f"{state} holds no state")
    metadata = {"samgraph.config": NANO.to_json(), "format": "pt"}
    checkpoint.save(out, known[0], precision="fp16", metadata=metadata)


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
