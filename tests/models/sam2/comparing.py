"""Comparing with golden files: each array with the limit for its kind."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from samgraph.graph import Array
from tests import tolerances
from tests.golden.reading import Golden

_RELATIVE = {
    "enc": tolerances.ENCODER,
    "pe": tolerances.PROMPTS,
    "dec": tolerances.DECODER,
    "heads": tolerances.DECODER,
    "maskout": tolerances.DECODER,
    "mem": tolerances.MEMORY_ENCODER,
    "perc": tolerances.MEMORY_ENCODER,
    "attn": tolerances.MEMORY_ATTENTION,
    "rope": tolerances.TABLES,
    "tpos": tolerances.TABLES,
}
_ABSOLUTE = {
    "ious": tolerances.IOU,
    "score": tolerances.OBJECT_SCORE,
    "stability": tolerances.STABILITY,
}
_INPUTS = ("_coords", "_labels", "_boxes")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """How far one array is from the recorded one, as a share of what it may be."""

    share: float
    name: str
    error: float

    def __str__(self) -> str:
        return f"{self.name}: {self.error:.1e}, {self.share:.2g} of its limit"


def recorded(golden: Golden) -> set[str]:
    """The names of everything in the file that is not an input."""
    return {
        name
        for name, entry in golden.index.items()
        if "recipe" not in entry and not name.endswith(_INPUTS)
    }


def compare(golden: Golden, name: str, array: Array) -> Finding:
    """One array with its limit: absolute for scores, else relative to the largest value."""
    end = name.rsplit("_", 1)[-1]
    if array.shape != golden.shape(name):
        return Finding(math.inf, f"{name} has shape {array.shape}", math.inf)
    if end in _ABSOLUTE:
        error, limit = golden.difference(name, array), _ABSOLUTE[end]
    else:
        kind = name.split("_")[0].rstrip("0123456789")
        error, limit = golden.compare(name, array), _RELATIVE[kind]
        if kind == "enc" and "in_image" in golden.index and golden.shape("in_image")[-1] == 1024:
            limit = tolerances.ENCODER_1024
    # Not a number is as wrong as can be.
    return Finding(error / limit if not math.isnan(error) else math.inf, name, error)


def compare_all(golden: Golden, named: Iterable[tuple[str, Array]]) -> dict[str, Finding]:
    """The worst finding for each name."""
    found: dict[str, Finding] = {}
    for name, array in named:
        finding = compare(golden, name, array)
        found[name] = max(found.get(name, finding), finding)
    return found


def wrong(found: dict[str, Finding]) -> list[str]:
    """What is beyond its limit, worst first."""
    beyond = sorted((f for f in found.values() if not f.share < 1.0), reverse=True)
    return [str(finding) for finding in beyond]
