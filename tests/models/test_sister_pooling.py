"""`pooled-memory` of the sister models: cross-attention against sums written out token by token.

Here a token is a key, a value, a place in a grid if it has one, and how many tokens it stands for:
in the softmax it is counted that often. The graphs add logarithms to scores instead.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from samgraph import ops
from samgraph.errors import OptionError
from samgraph.graph import Array, Scope, Tensor
from samgraph.graph.dims import floor_divide
from samgraph.models.edgetam import memory as edgetam_memory
from samgraph.models.edgetam.config import EdgeTamConfig
from samgraph.models.edgetam.graphs import GRAPHS as EDGETAM_GRAPHS
from samgraph.models.efficienttam import pooled_attention
from samgraph.models.efficienttam.config import EfficientTamConfig
from samgraph.models.efficienttam.graphs import _DESIGN as POOLED_DESIGN
from samgraph.models.efficienttam.graphs import GRAPHS as EFFICIENTTAM_GRAPHS
from samgraph.models.loading import approximate, find_config
from samgraph.models.nano.config import NanoConfig
from samgraph.models.nano.graphs import GRAPHS as NANO_GRAPHS
from samgraph.models.sam2 import memory_attention, memory_bank
from samgraph.models.sam2.memory_design import SAM2_MEMORY, MemoryDesign
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.runtime import APPROXIMATIONS
from tests.engines.present import ENGINES
from tests.models.sam2.bench import Bench
from tests.models.sisters import EDGETAM, POOLED_KEYS, POOLED_SCORES, SISTERS, small_weights
from tests.tolerances import MEMORY_ATTENTION

GRAPH_SETS: dict[type, Any] = {
    EdgeTamConfig: EDGETAM_GRAPHS,
    EfficientTamConfig: EFFICIENTTAM_GRAPHS,
    NanoConfig: NANO_GRAPHS,
}
AT = "memory_attention.layers.0.cross_attn_image."
OPEN = {
    "frames": "f32[N,F,{T},{C}]",
    "slots": "i64[N,F]",
    "pointers": "f32[N,K,{C}]",
}
Place = tuple[float, float]


@dataclass(frozen=True)
class Token:
    """A row that is attended to; `count` of them, all alike."""

    key: Array
    value: Array
    place: Place | None = None
    count: float = 1.0


def pooled(name: str) -> Any:
    return replace(SISTERS[name], memory_pool=2)


def design_of(config: TrackerConfig, frames: int) -> MemoryDesign:
    if isinstance(config, EdgeTamConfig):
        return edgetam_memory.DESIGN
    is_pooled = isinstance(config, EfficientTamConfig) and config.pooling != "none" and frames > 1
    return POOLED_DESIGN if is_pooled else SAM2_MEMORY


def drawn(config: TrackerConfig, frames: int, pointers: int) -> dict[str, Array]:
    """Two objects with memories of their own; slots out of order, as of prompted frames."""
    rng, C = np.random.default_rng(frames + pointers), config.memory_channels
    return {
        "queries": 3 * rng.standard_normal((2, config.grid**2, config.channels), np.float32),
        "frames": rng.standard_normal((2, frames, config.memory_tokens, C), np.float32),
        "slots": (np.arange(2 * frames).reshape(2, frames) * 5 + 6) % 7,
        "pointers": rng.standard_normal((2, pointers, C), np.float32),
    }


def computed(
    config: TrackerConfig, given: dict[str, Array], engine: str, *, is_open: bool = True
) -> Array:
    """The first cross-attention as the graphs have it; `is_open`: of any number of frames."""
    design = design_of(config, given["frames"].shape[1])

    def part(
        at: Scope, config: Any, queries: Tensor, frames: Tensor, slots: Tensor, pointers: Tensor
    ) -> dict[str, Tensor]:
        tokens, positions, plain = design.recall(at, config, frames, slots)
        scope = at / "memory_attention" / "layers" / 0 / "cross_attn_image"
        k, v = (ops.concat([x, pointers], axis=1) for x in (tokens + positions, tokens))
        return {"out": design.attend(scope, config, queries, k, v, plain + pointers.shape[1])}

    sizes = {"T": config.memory_tokens, "C": config.memory_channels}
    types = {name: text.format(**sizes) for name, text in OPEN.items()}
    types["queries"] = f"f32[N,{config.grid**2},{config.channels}]"
    graph_set = GRAPH_SETS[type(config)]
    bench = Bench(config, small_weights(SISTERS[config.name]), engine, graph_set=graph_set)
    return bench.run(part, types if is_open else {}, **given)["out"]


def expected(config: TrackerConfig, given: dict[str, Array]) -> Array:
    """The same, token by token in float64."""
    weights = {k: v.astype(np.float64) for k, v in small_weights(SISTERS[config.name]).items()}
    found = []
    for queries, frames, slots, pointers in zip(*given.values(), strict=True):
        q = projected(weights, "q_proj", queries.astype(np.float64))
        side = config.grid
        q = np.stack([rotated(config, row, (i % side, i // side)) for i, row in enumerate(q)])
        tokens = remembered(config, weights, frames.astype(np.float64), slots)
        tokens += [Token(projected(weights, "k_proj", x), x) for x in pointers.astype(np.float64)]
        scores = q @ np.stack([token.key for token in tokens]).T / np.sqrt(config.channels)
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares *= np.array([token.count for token in tokens])
        shares /= shares.sum(1, keepdims=True)
        values = projected(weights, "v_proj", np.stack([token.value for token in tokens]))
        found.append(projected(weights, "out_proj", shares @ values))
    return np.stack(found)


def remembered(
    config: TrackerConfig, weights: dict[str, Array], frames: Array, slots: Array
) -> list[Token]:
    """The tokens of all frames, rotated; of an approximated model pooled in all but the last."""
    tokens: list[Token] = []
    times = weights["maskmem_tpos_enc"].reshape(config.memory_frames, -1)
    side = config.latent_side if isinstance(config, EdgeTamConfig) else config.grid
    plain = config.latents if isinstance(config, EdgeTamConfig) else 0
    for index, (frame, slot) in enumerate(zip(frames, slots, strict=True)):
        rows = config.memory_positions() + times[slot] + frame
        tokens += [
            Token(projected(weights, "k_proj", row), value)
            for row, value in zip(rows[:plain], frame[:plain], strict=True)
        ]
        cells = [
            Token(rows[plain + i], frame[plain + i], (i % side, i // side)) for i in range(side**2)
        ]
        is_pooled = config.memory_pool == 2 and index < len(frames) - 1
        if is_pooled:
            cells = squares(cells, side)
        cells = [
            replace(cell, key=rotated(config, projected(weights, "k_proj", cell.key), cell.place))
            for cell in cells
        ]
        pooling = getattr(config, "pooling", "none")
        if pooling != "none" and len(frames) > 1:
            cells = squares(cells, side // 2 if is_pooled else side)
            if pooling == "keys":  # as those weights were trained: ln 4 on every channel
                cells = [replace(c, key=c.key + np.log(4), count=c.count / 4) for c in cells]
        tokens += cells
    return tokens


def squares(cells: list[Token], side: int) -> list[Token]:
    """Averages of 2 x 2 cells, each for all that its cells stand for."""
    found = []
    for y in range(0, side, 2):
        for x in range(0, side, 2):
            four = [cells[side * (y + j) + x + i] for j in (0, 1) for i in (0, 1)]
            places = np.array([cell.place for cell in four])
            found.append(
                Token(
                    np.mean([cell.key for cell in four], 0),
                    np.mean([cell.value for cell in four], 0),
                    (float(places[:, 0].mean()), float(places[:, 1].mean())),
                    sum(cell.count for cell in four),
                )
            )
    return found


def projected(weights: dict[str, Array], name: str, x: Array) -> Array:
    return np.asarray(x @ weights[f"{AT}{name}.weight"].T + weights[f"{AT}{name}.bias"])


def rotated(config: TrackerConfig, x: Array, place: Place | None) -> Array:
    """Adjacent channels as complex numbers; the first half turns with x, the second with y."""
    assert place is not None
    width = len(x)
    speeds = config.rope_theta ** (-np.arange(0, width, 4) / width)
    turns = np.exp(1j * np.concatenate([place[0] * speeds, place[1] * speeds]))
    turned = (x[0::2] + 1j * x[1::2]) * turns
    return np.stack([turned.real, turned.imag], axis=1).reshape(width)


def error(found: Array, wanted: Array) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("pointers", [0, 8])
@pytest.mark.parametrize("frames", [1, 2, 7])
@pytest.mark.parametrize("name", SISTERS)
@pytest.mark.parametrize("memory_pool", [1, 2])
def test_a_part_filled_bank_is_attended_to_as_written_out(
    name: str, memory_pool: int, frames: int, pointers: int
) -> None:
    """With and without the approximation; compiled by the engine for CPUs."""
    config = replace(SISTERS[name], memory_pool=memory_pool)
    given = drawn(config, frames, pointers)

    found = computed(config, given, "openvino")

    assert error(found, expected(config, given)) < MEMORY_ATTENTION


@pytest.mark.parametrize("engine", ["reference", "torch", "onnxruntime"])
@pytest.mark.parametrize("name", SISTERS)
def test_every_engine_pools(name: str, engine: str) -> None:
    if engine not in ENGINES:
        pytest.skip(f"engine {engine} is not installed")
    config = pooled(name)
    for pointers in (0, 4):
        given = drawn(config, 3, pointers)
        for is_open in (True, False):
            found = computed(config, given, engine, is_open=is_open)

            assert error(found, expected(config, given)) < MEMORY_ATTENTION


def without_weight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("samgraph.models.sam2.memory_attention.math.log", lambda count: 0.0)


def weight_of_four_for_sixteen(patch: pytest.MonkeyPatch) -> None:
    older = 2 * SISTERS[POOLED_KEYS.name].grid ** 2 // 4
    patch.setattr(
        pooled_attention,
        "floor_divide",
        lambda dim, by: 0 if dim == older else floor_divide(dim, by),
    )


def latents_rotated_as_cells(patch: pytest.MonkeyPatch) -> None:
    true = memory_attention.rotate

    def rotate(config: Any, x: Any, unrotated: Any, side: Any = None, pooled: Any = 0) -> Any:
        return true(config, x, unrotated + pooled, side)

    patch.setattr(memory_attention, "rotate", rotate)


def neighbours_in_a_row(patch: pytest.MonkeyPatch) -> None:
    def average(cells: Any, side: int) -> Any:
        N, M, C = cells.shape
        return ops.reduce(cells.reshape(N, M // 4, 4, C), (2,), how="mean")

    patch.setattr(memory_bank, "average_cells", average)


def global_latents_pooled_too(patch: pytest.MonkeyPatch) -> None:
    true = edgetam_memory.rotated_first

    def rotated_first(config: Any, frames: Any) -> Any:
        L = config.latents
        N, F, _, C = frames.shape
        mean = ops.reduce(frames[:, :, :L], (2,), how="mean").reshape(N, F, 1, C)
        return true(config, ops.concat([ops.expand(mean, N, F, L, C), frames[:, :, L:]], axis=2))

    patch.setattr(edgetam_memory, "rotated_first", rotated_first)


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        (EDGETAM.name, without_weight),
        (EDGETAM.name, latents_rotated_as_cells),
        (EDGETAM.name, neighbours_in_a_row),
        (EDGETAM.name, global_latents_pooled_too),
        ("small efficienttam", without_weight),
        ("small efficienttam", neighbours_in_a_row),
        (POOLED_SCORES.name, weight_of_four_for_sixteen),
        (POOLED_KEYS.name, weight_of_four_for_sixteen),
        (POOLED_KEYS.name, neighbours_in_a_row),
    ],
)
def test_a_planted_fault_is_found(name: str, plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pooled(name)
    given = drawn(config, 3, 4)
    plant(monkeypatch)

    found = computed(config, given, "reference", is_open=False)

    assert error(found, expected(config, given)) > 5 * MEMORY_ATTENTION


@pytest.mark.parametrize("name", ["edgetam", "efficienttam-s", "efficienttam-ti-2", "sam2.1-tiny"])
def test_released_models_have_every_approximation(name: str) -> None:
    family, config = find_config(name)

    for approximation in APPROXIMATIONS.values():
        found = approximate(family, config, approximation)

        assert found.memory_pool == approximation.memory_pool
        assert found.image_size == config.image_size // approximation.input_divisor


def test_a_grid_that_cannot_be_pooled_is_refused() -> None:
    with pytest.raises(OptionError, match="a grid of 3 windowed latents a side cannot be pooled"):
        replace(EDGETAM, latent_side=3, image_size=96, memory_pool=2)
    with pytest.raises(OptionError, match="image size 96 is not a multiple of 64, to pool the mem"):
        replace(POOLED_KEYS, image_size=96, memory_pool=2)
