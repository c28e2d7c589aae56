"""Inputs that broke a promise, kept as tests: the recipe, and the bytes where they are not many.

    {"target": "graph", "seed": 0, "number": 1234, "why": "it leaked RecursionError", "data": "..."}

With `data` (zlib, base64) the input stays what it was when the generators change; without, for one
that does not become small, the recipe makes it again.
"""

import base64
import hashlib
import json
import random
import zlib
from pathlib import Path
from typing import Protocol

from fuzz.target import Target
from fuzz.targets import find_target

MOST_BYTES = 16_384


def generator(seed: int, target: str, number: int) -> random.Random:
    """The random numbers of one input: the same on every machine."""
    return random.Random(f"{seed}/{target}/{number}")


class Found(Protocol):
    """What is kept of a finding: the number of the input, and what it did."""

    @property
    def number(self) -> int: ...
    @property
    def why(self) -> str: ...


def keep(folder: Path, target: str, seed: int, finding: Found) -> Path:
    """Write down an input; returns the file, named after what it does."""
    data = find_target(target).make(generator(seed, target, finding.number))
    record = {"target": target, "seed": seed, "number": finding.number, "why": finding.why[:200]}
    packed = base64.b64encode(zlib.compress(data, 9)).decode("ascii")
    if len(packed) <= MOST_BYTES:
        record["data"] = packed
    path = folder / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return path


def kept_input(path: Path) -> tuple[Target, bytes]:
    """The target and the input of a kept file."""
    record = json.loads(path.read_text(encoding="utf-8"))
    target = find_target(record["target"])
    if "data" in record:
        return target, zlib.decompress(base64.b64decode(record["data"]))
    return target, target.make(generator(record["seed"], record["target"], record["number"]))


def target_of(path: Path) -> str:
    """The name of the target of a kept file."""
    return path.name.rpartition("-")[0]
