"""The comparisons with golden files find mistakes that are planted in the sister models."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.graph import Array
from samgraph.models.edgetam import memory, perceiver, repvit
from samgraph.models.edgetam.config import EDGETAM
from samgraph.models.edgetam.graphs import GRAPHS as EDGETAM_GRAPHS
from samgraph.models.efficienttam import pooled_attention, vit
from samgraph.models.efficienttam.config import NAMED
from samgraph.models.efficienttam.graphs import GRAPHS as EFFICIENTTAM_GRAPHS
from samgraph.models.sam2.positions import token_positions
from tests.golden.reading import Golden
from tests.models.edgetam import parts as edge
from tests.models.efficienttam import parts as efficient
from tests.models.sam2.bench import Bench
from tests.models.sam2.comparing import compare_all
from tests.models.sam2.faults.planting import Patch, wrap
from tests.models.sister_components import known, sister_bench

pytestmark = pytest.mark.shared("golden-families")
Run = Callable[[Golden, Bench], Iterator[tuple[str, Array]]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is planted, the family it is in, and the part that must show it."""

    plant: Callable[[Patch], None]
    family: str
    part: Run


FAULTS: dict[str, Fault] = {}


def fault(family: str, part: Run) -> Callable[[Callable[[Patch], None]], None]:
    """Register a fault under the name of its function."""

    def register(plant: Callable[[Patch], None]) -> None:
        FAULTS[plant.__name__] = Fault(plant, family, part)

    return register


def edge_attention(golden: Golden, bench: Bench) -> Iterator[tuple[str, Array]]:
    return edge.memory_attention(golden, bench, "f")


def pooled(golden: Golden, bench: Bench) -> Iterator[tuple[str, Array]]:
    return known(golden, efficient.memory_attention(golden, bench, "e"))


@fault("edgetam", edge.perceiver_steps)
def latents_of_windows_with_a_position(patch: Patch) -> None:
    def windows(original: Any, config: Any, x: Any) -> Any:
        return original(config, x + token_positions(64, config.grid)[None])

    wrap(patch, perceiver, "windows", windows)


@fault("edgetam", edge.perceiver_steps)
def windows_in_columns(patch: Patch) -> None:
    def partition(original: Any, x: Any, h: int, w: int) -> Any:
        return original(x.transpose(0, 2, 1, 3), h, w)

    wrap(patch, perceiver, "partition", partition)


@fault("edgetam", edge.perceiver_steps)
def values_before_keys(patch: Patch) -> None:
    wrap(patch, perceiver, "keys_values", lambda original, *given: original(*given)[::-1])


@fault("edgetam", edge_attention)
def global_latents_rotated(patch: Patch) -> None:
    def swapped(original: Any, config: Any, frames: Any) -> Any:
        L = config.latents
        return original(config, ops.concat([frames[:, :, L:], frames[:, :, :L]], axis=2))

    wrap(patch, memory, "rotated_first", swapped)


@fault("edgetam", edge_attention)
def keys_on_a_scaled_grid(patch: Patch) -> None:
    def attention(original: Any, *given: Any, key_side: int) -> Any:
        return original(*given, key_side=key_side // 2)

    wrap(patch, memory, "rope_attention", attention)


@fault("edgetam", edge.image_encoder)
def token_mixer_without_identity(patch: Patch) -> None:
    wrap(patch, repvit, "token_mixer", lambda original, at, config, x: original(at, config, x) - x)


@fault("edgetam", edge.image_encoder)
def batch_norm_without_its_mean(patch: Patch) -> None:
    def norm(original: Any, at: Any, x: Any, **given: Any) -> Any:
        C = x.type.length(1)
        return original(at, x + at.weight("running_mean", C).reshape(C, 1, 1), **given)

    wrap(patch, repvit, "batch_norm", norm)


@fault("efficienttam", pooled)
def pooled_tokens_that_stand_for_one(patch: Patch) -> None:
    patch.setattr(pooled_attention, "_WEIGHT", 0.0)


@fault("efficienttam", pooled)
def pooled_tokens_that_stand_for_two(patch: Patch) -> None:
    patch.setattr(pooled_attention, "_WEIGHT", math.log(2))


@fault("efficienttam", efficient.image_encoder)
def positions_transposed(patch: Patch) -> None:
    def resize(original: Any, x: Any, size: Any, **given: Any) -> Any:
        return original(x.transpose(0, 1, 3, 2), size, **given)

    wrap(patch, ops, "resize", resize)


@fault("efficienttam", efficient.image_encoder)
def windows_everywhere(patch: Patch) -> None:
    wrap(patch, vit, "block", lambda original, at, config, x, _: original(at, config, x, False))


def worst(fault: Fault) -> float:
    """The share of its limit that the worst array of the part has."""
    if fault.family == "edgetam":
        golden, bench = sister_bench("edgetam", EDGETAM, EDGETAM_GRAPHS, "openvino")
    else:
        config = NAMED["efficienttam-ti-512x512"]
        golden, bench = sister_bench(
            "efficienttam_ti_512x512", config, EFFICIENTTAM_GRAPHS, "openvino"
        )
    found = compare_all(golden, fault.part(golden, bench))
    return float(np.max([finding.share for finding in found.values()]))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name].plant(monkeypatch)

    assert worst(FAULTS[name]) > 5.0
