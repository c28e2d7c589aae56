"""What the data must be: a sha256 for each file."""

import hashlib
import json
from pathlib import Path

MANIFEST = Path(__file__).parent / "manifest.json"


def check(folder: Path) -> None:
    """Every file of the manifest is there, byte for byte."""
    for name, expected in json.loads(MANIFEST.read_text()).items():
        path = folder / name
        if not path.is_file():
            raise SystemExit(f"{path} is missing; training/README.md says where it is from")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise SystemExit(f"{path} is not what the manifest says: sha256 {found}")
