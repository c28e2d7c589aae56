"""What the graphs of the memory must give, from parts that are held to the golden files.

The golden files have memory with any positions and masks of full size; the graphs make their
positions from slots and times, and enlarge masks themselves. Here that is done by hand.
"""

from dataclasses import dataclass

import numpy as np

from samgraph.graph import Array
from samgraph.models.sam2.positions import sine_grid
from samgraph.models.sam2.tracker_config import TrackerConfig
from tests import tolerances
from tests.models.sam2.bench import Bench, Outputs
from tests.models.sam2.comparing import Finding
from tests.models.sam2.decoder_parts import enlarge
from tests.models.sam2.memory_parts import attended, encoded


@dataclass(frozen=True, slots=True)
class Wired:
    """Inputs of a graph, and the output they must give."""

    graph: str
    output: str
    inputs: Outputs
    expected: Array
    limit: float

    def check(self, bench: Bench) -> Finding:
        """How far the graph is from that."""
        found = bench.graph(self.graph, **self.inputs)[self.output]
        error = float(np.abs(found - self.expected).max() / np.abs(self.expected).max())
        return Finding(error / self.limit, f"graph {self.graph}", error)


def attention_inputs(config: TrackerConfig, N: int, F: int, Q: int, seed: int = 0) -> Outputs:
    """N objects with F frames in slots of their own, and Q pointers from both sides in time."""
    rng = np.random.default_rng(seed)
    C, E = config.channels, config.grid

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    return {
        "embedding": draw(1, C, E, E),
        "memory": draw(N, F, E * E, config.memory_channels),
        "slots": rng.integers(0, config.memory_frames, (N, F)),
        "pointers": draw(N, Q, C),
        "pointer_times": (rng.integers(-15, 16, (N, Q)) / 15).astype(np.float32),
    }


def memory_attention(bench: Bench, inputs: Outputs) -> Wired:
    """The graph of memory attention: positions as the reference makes them, by hand."""
    config = bench.config
    N, Q = inputs["pointer_times"].shape
    E, C, small = config.grid, config.channels, config.memory_channels
    frames = inputs["memory"].reshape(N, -1, small)
    embedding = sine_grid(small, E, E).reshape(small, -1).T
    time = bench.weights["maskmem_tpos_enc"][inputs["slots"]].reshape(N, -1, 1, small)
    positions = [(time + embedding).reshape(N, -1, small), pointer_positions(bench, inputs)]
    tokens = inputs["pointers"].reshape(N, Q * (C // small), small)
    current = inputs["embedding"].reshape(1, C, -1).transpose(0, 2, 1)
    outputs = bench.run(
        attended,
        current=np.repeat(current, N, axis=0),
        memory=np.concatenate([frames, tokens], axis=1),
        position=np.concatenate(positions, axis=1),
    )
    expected = outputs["out"].transpose(0, 2, 1).reshape(N, C, E, E)
    limit = tolerances.MEMORY_ATTENTION
    return Wired("memory_attention", "embedding", inputs, expected, limit)


def pointer_positions(bench: Bench, inputs: Outputs) -> Array:
    """Sines of the distance, projected, the same for the tokens of a pointer; zero in SAM 2."""
    config, times = bench.config, inputs["pointer_times"]
    split = config.channels // config.memory_channels
    if not config.pointer_time:
        shape = (len(times), times.shape[1] * split, config.memory_channels)
        return np.zeros(shape, np.float32)
    half = config.channels // 2
    periods = 10000 ** (2 * (np.arange(half) // 2) / half)
    angles = times[..., None].astype(np.float64) / periods
    sines = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    weight, bias = (bench.weights[f"obj_ptr_tpos_proj.{name}"] for name in ("weight", "bias"))
    return np.repeat(sines @ weight.T + bias, split, axis=1).astype(np.float32)


def memory_encoder(bench: Bench, seed: int = 0) -> Wired:
    """The graph of the memory encoder: four objects, soft and hard, visible and occluded."""
    rng = np.random.default_rng(seed)
    C, E, L = bench.config.channels, bench.config.grid, bench.config.mask_size
    inputs: Outputs = {
        "embedding": rng.standard_normal((1, C, E, E), np.float32),
        "mask": rng.standard_normal((4, 1, L, L), np.float32) * np.float32(5),
        "object_score": np.array([[0.7], [-0.7], [1e-3], [0.0]], np.float32),
        "binary": np.array([False, False, True, True]),
    }
    pixels = inputs["embedding"].reshape(1, C, -1).transpose(0, 2, 1)
    full = bench.run(enlarge, mask=inputs["mask"])["high"]
    outputs = bench.run(encoded, pixels=pixels, logits=full, binary=inputs["binary"])
    seen = inputs["object_score"].reshape(-1, 1, 1, 1) > 0
    memory = np.where(seen, outputs["present"], outputs["absent"])
    expected = memory.reshape(4, bench.config.memory_channels, -1).transpose(0, 2, 1)
    return Wired("memory_encoder", "memory", inputs, expected, tolerances.MEMORY_ENCODER)
