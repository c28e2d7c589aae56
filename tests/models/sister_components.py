"""Components of the sister models under the names of their golden files (`shared`).

What they share with SAM 2 is computed by the parts of `tests/models/sam2`; names that a file does
not have are left out. What is their own is in the folders of the families.
"""

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from samgraph import ops
from samgraph.graph import Array, Scope, Tensor, symbol
from samgraph.models.sam2.graph_set import GraphSet
from samgraph.models.sam2.layers import layer_norm
from samgraph.models.sam2.memory_attention import (
    _POSITION_SHARE,
    Attend,
    project,
    rope_attention,
    rotate,
    self_attention_step,
)
from samgraph.models.sam2.positions import token_positions
from samgraph.models.sam2.tracker_config import TrackerConfig
from tests.golden.reading import Golden, families_dir
from tests.models.sam2 import components, decoder_parts, memory_parts
from tests.models.sam2.bench import Bench

Named = Iterator[tuple[str, Array]]
Runner = Callable[[Golden, Bench], Named]


@cache
def _weights() -> ModuleType:
    """`weights.py` beside the golden files."""
    spec = importlib.util.spec_from_file_location("families_weights", families_dir() / "weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def manifest() -> dict[str, dict[str, Any]]:
    """Keys, shapes and settings of the released models, by name."""
    found: dict[str, dict[str, Any]] = json.loads((families_dir() / "manifest.json").read_text())
    return found


def released_shapes(name: str) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a released file."""
    return {key: tuple(shape) for key, shape in manifest()[name]["keys"].items()}


@cache
def sister_weights(name: str, seed: int) -> dict[str, Array]:
    """The weights behind the golden files; counters of batch norms included."""
    tensor = _weights().tensor
    return {key: tensor(key, shape, seed) for key, shape in released_shapes(name).items()}


def read_weights(
    graph_set: GraphSet, config: TrackerConfig, name: str, seed: int
) -> dict[str, Array]:
    """Those that graphs read."""
    weights, unread = sister_weights(name, seed), graph_set.unread(config)
    return {key: array for key, array in weights.items() if key not in unread}


def sister_bench(
    name: str, config: TrackerConfig, graph_set: GraphSet, engine: str
) -> tuple[Golden, Bench]:
    """A golden file, and a bench with the weights behind it."""
    golden = Golden(families_dir() / f"components_{name}.npz")
    weights = read_weights(graph_set, config, name, golden.weights_seed)
    return golden, Bench(config, weights, engine, graph_set=graph_set)


def run_shared(golden: Golden, bench: Bench, parts: tuple[str, ...] = ()) -> Named:
    """What is as in SAM 2, all of it or some parts; only what the file has."""
    for name, runner in SHARED.items():
        if not parts or name in parts:
            yield from known(golden, runner(golden, bench))


def known(golden: Golden, named: Named) -> Named:
    """Those that the file has."""
    return ((name, array) for name, array in named if name in golden.index)


def points(golden: Golden, bench: Bench) -> Named:
    """Points and boxes as tokens."""
    for case in ("point1", "box", "box_point", "points_b2", "empty_point"):
        xy, labels = decoder_parts.points_of(golden, f"pe_{case}")
        sparse = bench.run(components._ended, xy=xy, labels=labels)["sparse"]
        yield f"pe_{case}_sparse", sparse


def decoder(golden: Golden, bench: Bench) -> Named:
    """The insides of the decoder, and the graphs made of it."""
    for group in ("click", "sister_box", "sister_three"):
        yield from decoder_parts.decoder(group, golden, bench)
    yield from decoder_parts.decode("sister", golden, bench)
    yield from decoder_parts.decode_prepared(golden, bench, "sister")


def heads(golden: Golden, bench: Bench) -> Named:
    """The decoder as video uses it."""
    for case in ("pt_multi", "none_multi"):
        yield from decoder_parts.heads(case, golden, bench)
    yield from decoder_parts.mask_prompt(golden, bench)


def rotated(
    at: Scope,
    config: TrackerConfig,
    current: Tensor,
    memory: Tensor,
    position: Tensor,
    unrotated: int,
    key_side: int,
) -> dict[str, Tensor]:
    """Queries and keys of the first cross-attention, after rotation; without unrotated keys."""
    E, C = config.grid, config.channels
    grid = at.builder.constant(token_positions(C, E)[None])
    layer = at / "memory_attention" / "layers" / 0
    x = self_attention_step(layer, config, current + grid * _POSITION_SHARE, grid)
    normal = layer_norm(layer / "norm2", x, eps=config.transformer_norm_eps)
    scope = layer / "cross_attn_image"
    q, k, _ = project(scope, config, normal, memory + position, memory)
    q, k = rotate(config, q, 0), rotate(config, k, unrotated, key_side)
    return {"attn_b_layer0_q_rope": q[:, None], "attn_b_layer0_k_rope": k[:, None]}


def attention_inputs(golden: Golden, config: TrackerConfig, case: str) -> dict[str, Array]:
    """The frame, and frames and pointers of the memory with their positions."""
    current = golden.input("in_attn_curr_b2" if case == "e" else "in_attn_curr")
    memory = golden.input(f"in_attn_{case}_memory")
    position = golden.input(f"in_attn_{case}_memory_pos")
    count = len(memory) // config.memory_tokens * config.memory_tokens
    given = {
        "current": current,
        "frames": memory[:count],
        "pointers": memory[count:],
        "frame_position": position[:count],
        "pointer_position": position[count:],
    }
    return {name: np.ascontiguousarray(x.transpose(1, 0, 2)) for name, x in given.items()}


def bank_types(config: TrackerConfig) -> dict[str, str]:
    """Types with any number of frames and pointers, as in the model's graphs."""
    T, C, c = config.memory_tokens, config.channels, config.memory_channels
    frames, pointers = f"f32[N,{T}*F,{c}]", f"f32[N,4*Q,{c}]"
    return {
        "current": f"f32[N,{config.grid**2},{C}]",
        "frames": frames,
        "pointers": pointers,
        "frame_position": frames,
        "pointer_position": pointers,
    }


def attended_bank(
    at: Scope,
    config: TrackerConfig,
    current: Tensor,
    frames: Tensor,
    pointers: Tensor,
    frame_position: Tensor,
    pointer_position: Tensor,
    attend: Attend = rope_attention,
    reorder: Callable[[Any, Tensor], Tensor] = lambda _, x: x,
    unrotated: int = 0,
) -> dict[str, Tensor]:
    """Every step of memory attention over frames, reordered, then pointers.

    `unrotated` is how many tokens of a frame are unrotated.
    """
    memory = ops.concat([reorder(config, frames), pointers], axis=1)
    position = ops.concat([reorder(config, frame_position), pointer_position], axis=1)
    plain = pointers.shape[1] + symbol("F") * unrotated
    return memory_parts.attended(at, config, current, memory, position, attend, plain)


SHARED: Mapping[str, Runner] = {
    "points": points,
    "dense": components.dense,
    "decoder": decoder,
    "heads": heads,
    "memory_encoder": memory_parts.memory_encoder,
}
