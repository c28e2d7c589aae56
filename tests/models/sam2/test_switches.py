"""Switches of the config, each against memory attention written down in numpy."""

from dataclasses import replace
from math import erf

import numpy as np
import pytest

from samgraph.errors import InputError, ShapeError
from samgraph.graph import Array, Scope, Tensor
from samgraph.models.sam2 import graphs, memory_attention, memory_bank, prompts
from samgraph.models.sam2.config import Sam2Config, find_config
from samgraph.models.sam2.positions import sine_grid
from tests import tolerances
from tests.models.sam2.bench import Bench, known_weights
from tests.models.sam2.wiring import attention_inputs

SMALL = find_config(
    {
        "image_size": 64,
        "embed_dim": 16,
        "stages": [1, 1, 1, 1],
        "global_blocks": [],
        "channels": 32,
        "decoder_heads": 2,
        "decoder_feedforward": 16,
        "memory_channels": 8,
        "memory_layers": 2,
        "memory_feedforward": 24,
        "fuser_layers": 1,
        "pointer_time": False,
    }
)
SWITCHED = {
    "defaults": SMALL,
    "pos_enc_at_attn": replace(SMALL, pos_enc_at_attn=True),
    "pos_enc_at_cross_attn_queries": replace(SMALL, pos_enc_at_cross_attn_queries=True),
    "pos_enc_at_cross_attn_keys": replace(SMALL, pos_enc_at_cross_attn_keys=False),
    "rope_k_repeat": replace(SMALL, rope_k_repeat=False),
    "transformer_norm_eps": replace(SMALL, transformer_norm_eps=0.5),
}


class ByHand:
    """Memory attention of a config, in float64."""

    def __init__(self, config: Sam2Config, weights: dict[str, Array]) -> None:
        self.config = config
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}

    def run(self, inputs: dict[str, Array]) -> Array:
        config, (N, F, T, c) = self.config, inputs["memory"].shape
        position = _tokens(sine_grid(config.channels, config.grid, config.grid))
        x = _tokens(inputs["embedding"][0]) + 0.1 * position
        x = np.repeat(x[None], N, axis=0)
        pointers = inputs["pointers"].reshape(N, -1, c)
        memory = np.concatenate([inputs["memory"].reshape(N, F * T, c), pointers], 1)
        time = self.weights["maskmem_tpos_enc"].reshape(-1, c)[inputs["slots"]][:, :, None]
        grid = _tokens(sine_grid(c, config.grid, config.grid))
        placed = np.pad(
            (time + grid).reshape(N, F * T, c), ((0, 0), (0, pointers.shape[1]), (0, 0))
        )
        for i in range(config.memory_layers):
            x = self._layer(f"memory_attention.layers.{i}.", x, position, memory, placed)
        normal = self._norm("memory_attention.norm.", x)
        return normal.transpose(0, 2, 1).reshape(N, -1, config.grid, config.grid)

    def _layer(self, at: str, x: Array, position: Array, memory: Array, placed: Array) -> Array:
        config = self.config
        normal = self._norm(f"{at}norm1.", x)
        q = normal + position if config.pos_enc_at_attn else normal
        x = x + self._attention(f"{at}self_attn.", q, q, normal)
        normal = self._norm(f"{at}norm2.", x)
        q = normal + position if config.pos_enc_at_cross_attn_queries else normal
        k = memory + placed if config.pos_enc_at_cross_attn_keys else memory
        x = x + self._attention(f"{at}cross_attn_image.", q, k, memory)
        normal = self._norm(f"{at}norm3.", x)
        hidden = np.maximum(self._linear(f"{at}linear1.", normal), 0)
        return x + self._linear(f"{at}linear2.", hidden)

    def _attention(self, at: str, q: Array, k: Array, v: Array) -> Array:
        q, k, v = (self._linear(f"{at}{n}_proj.", x) for n, x in (("q", q), ("k", k), ("v", v)))
        q, k = self._rotated(q), self._rotated(k)
        scores = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
        return self._linear(f"{at}out_proj.", scores / scores.sum(-1, keepdims=True) @ v)

    def _rotated(self, x: Array) -> Array:
        """Whole frames rotated by column, then by row; what is left over is not rotated."""
        config, (N, length, C) = self.config, x.shape
        cells = config.grid**2
        rows, columns = np.divmod(np.arange(cells), config.grid)
        speeds = config.rope_theta ** (-4 * np.arange(C // 4) / C)
        angles = np.concatenate([columns[:, None] * speeds, rows[:, None] * speeds], 1)
        whole = length // cells * cells
        pairs = x[:, :whole].reshape(N, -1, cells, C // 2, 2)
        rotated = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
        parts = np.stack([rotated.real, rotated.imag], -1).reshape(N, whole, C)
        return np.concatenate([parts, x[:, whole:]], 1)

    def _norm(self, at: str, x: Array) -> Array:
        centred: Array = x - x.mean(-1, keepdims=True)
        scale: Array = np.sqrt(x.var(-1, keepdims=True) + self.config.transformer_norm_eps)
        return centred / scale * self.weights[f"{at}weight"] + self.weights[f"{at}bias"]

    def _linear(self, at: str, x: Array) -> Array:
        return x @ self.weights[f"{at}weight"].T + self.weights[f"{at}bias"]


def _tokens(image: Array) -> Array:
    return image.reshape(len(image), -1).T.astype(np.float64)


def inputs_of(config: Sam2Config) -> dict[str, Array]:
    return attention_inputs(config, 2, 2 if config.rope_k_repeat else 1, 1)


@pytest.mark.parametrize("engine", ["reference", "openvino"])
@pytest.mark.parametrize("name", SWITCHED)
def test_a_switch_does_what_numpy_does(name: str, engine: str) -> None:
    config = SWITCHED[name]
    weights, inputs = known_weights(config, 3), inputs_of(config)

    found = Bench(config, weights, engine).graph("memory_attention", **inputs)["embedding"]

    wanted = ByHand(config, weights).run(inputs)
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < tolerances.MEMORY_ATTENTION


@pytest.mark.parametrize("name", [n for n in SWITCHED if n not in ("defaults", "rope_k_repeat")])
def test_a_switch_makes_a_difference(name: str) -> None:
    weights, inputs = known_weights(SMALL, 3), inputs_of(SMALL)

    plain, switched = (ByHand(c, weights).run(inputs) for c in (SMALL, SWITCHED[name]))

    assert np.abs(plain - switched).max() / np.abs(plain).max() > 100 * tolerances.MEMORY_ATTENTION


def test_switches_change_no_weight() -> None:
    shapes = [graphs.weight_shapes(config) for config in SWITCHED.values()]

    assert all(shape == shapes[0] for shape in shapes)


def test_without_key_repeat_the_memory_is_one_frame() -> None:
    config = SWITCHED["rope_k_repeat"]
    bench = Bench(config, known_weights(config, 3), "reference")

    with pytest.raises(InputError, match="input `memory` has the wrong shape"):
        bench.graph("memory_attention", **attention_inputs(config, 1, 2, 1))


def test_without_key_repeat_more_frames_cannot_be_traced() -> None:
    def model(at: Scope, config: Sam2Config, x: Tensor, memory: Tensor) -> dict[str, Tensor]:
        y = memory_attention.memory_attention(at, config, x, x, memory, memory, 0)
        return {"y": y}

    config = SWITCHED["rope_k_repeat"]
    x, memory = np.zeros((1, 16, 32), np.float32), np.zeros((1, 32, 8), np.float32)
    bench = Bench(config, {}, "reference")

    with pytest.raises(ShapeError, match="without `rope_k_repeat` the memory is one frame"):
        bench.run(model, x=x, memory=memory)


def test_the_norm_of_images_has_the_epsilon_of_the_config() -> None:
    """A mask prompt by hand: two convolutions of 2 x 2, each with a norm over the channels."""
    config = replace(SMALL, norm_eps=0.25)
    weights, at = known_weights(config, 4), "sam_prompt_encoder.mask_downscaling."
    logits = np.random.default_rng(0).standard_normal((1, 1, 16, 16), np.float32)

    def model(scope: Scope, config: Sam2Config, mask: Tensor) -> dict[str, Tensor]:
        return {"dense": prompts.mask(scope / "sam_prompt_encoder", config, mask)}

    found = Bench(config, weights, "reference").run(model, mask=logits)["dense"]

    x = logits
    for step in (0, 3):
        N, C, H, W = x.shape
        cells = x.reshape(N, C, H // 2, 2, W // 2, 2)
        kernel, bias = (weights[f"{at}{step}.{name}"] for name in ("weight", "bias"))
        y = np.einsum("nchawb,ocab->nohw", cells, kernel) + bias[:, None, None]
        y = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 0.25)
        scale, shift = (weights[f"{at}{step + 1}.{name}"] for name in ("weight", "bias"))
        y = y * scale[:, None, None] + shift[:, None, None]
        x = y * 0.5 * (1 + np.vectorize(erf)(y / np.sqrt(2)))
    out, bias = weights[f"{at}6.weight"][:, :, 0, 0], weights[f"{at}6.bias"]
    wanted = np.einsum("nchw,oc->nohw", x, out) + bias[:, None, None]
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < tolerances.PROMPTS


@pytest.mark.parametrize("name", graphs.TRACES)
def test_every_norm_has_an_epsilon_of_the_config(name: str) -> None:
    config = replace(SMALL, norm_eps=0.125, transformer_norm_eps=0.25)

    nodes = [node for node in graphs.TRACES[name](config) if "norm" in node.op]

    for node in nodes:
        images = node.op == "layer_norm_2d" or name == "image_encoder" or "upscaling" in str(node)
        assert node.attributes["eps"] == (0.125 if images else 0.25)


@pytest.mark.parametrize("slot", [-1, 7])
def test_a_slot_that_does_not_exist_is_refused(slot: int) -> None:
    slots = np.array([[0, 6], [slot, 3]])

    with pytest.raises(InputError, match="a slot that does not exist") as caught:
        memory_bank.check_slots(SMALL, slots)

    assert f"got:      {slot}" in str(caught.value)
    memory_bank.check_slots(SMALL, np.array([[0, 6]]))
    memory_bank.check_slots(SMALL, np.zeros((2, 0), np.int64))
