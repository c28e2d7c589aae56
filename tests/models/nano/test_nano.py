"""samgraph-nano's own parts: the attention of TinyViT, the refinement of masks, its config."""

import json
import math
import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError
from samgraph.graph import Array, Scope, Tensor
from samgraph.models.loading import find_config as config_of_any
from samgraph.models.loading import read_source, recognise
from samgraph.models.nano.config import NANO, NanoConfig, find_config, from_json
from samgraph.models.nano.graphs import GRAPHS
from samgraph.models.nano.tinyvit import offsets, windowed
from samgraph.models.sam2.config_rules import RANGES
from samgraph.models.sam2.mask_decoder import refine
from samgraph.models.sam2.tracker_config import REFINED_CHANNELS, TrackerConfig
from tests import tolerances
from tests.models.sam2.bench import Bench
from tests.models.sisters import SMALL_NANO, small_weights

PLAIN = json.loads(NANO.to_json())
WRONG: tuple[object, ...] = (None, True, "7", -1, 2**40, float("nan"), [], [10**6] * 4, [[]], {})


def bench(engine: str) -> Bench:
    return Bench(SMALL_NANO, small_weights(SMALL_NANO), engine, graph_set=GRAPHS)


def test_scores_go_by_the_distance_of_tokens() -> None:
    table = np.array([0, 1, 2, 3])  # offsets (0,0), (0,1), (1,0), (1,1)

    found = table[offsets(2)]

    np.testing.assert_array_equal(found, [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]])


@pytest.mark.parametrize("engine", ["reference", "openvino"])
def test_windowed_attention_is_what_its_equation_says(engine: str) -> None:
    """Every window and head by itself; the last windows are padded with zeros before the norm."""
    C, heads, side, window = 16, 2, 8, 3
    at = "image_encoder.trunk.layers.1.blocks.0.attn"
    weights = {k.removeprefix(at + "."): v for k, v in small_weights(SMALL_NANO).items()}
    rng = np.random.default_rng(3)
    weights["attention_biases"] = rng.standard_normal((heads, window**2)).astype(np.float32)
    tested = Bench(
        SMALL_NANO,
        {**small_weights(SMALL_NANO), f"{at}.attention_biases": weights["attention_biases"]},
        engine,
    )

    def part(scope: Scope, _: TrackerConfig, x: Tensor) -> dict[str, Tensor]:
        place = scope / "image_encoder" / "trunk" / "layers" / 1 / "blocks" / 0 / "attn"
        return {"y": windowed(place, x, heads, window)}

    x = rng.standard_normal((2, C, side, side)).astype(np.float32)
    found = tested.run(part, x=x)["y"]

    np.testing.assert_allclose(
        found, attended(weights, x, heads, window), rtol=0, atol=tolerances.ENCODER * 10
    )


def attended(weights: dict[str, Array], x: Array, heads: int, window: int) -> Array:
    """Attention in windows, window by window: [B, C, H, W] -> [B, C, H, W]."""
    B, C, H, W = x.shape
    padded = np.zeros((B, C, -(-H // window) * window, -(-W // window) * window))
    padded[:, :, :H, :W] = x
    out = np.zeros_like(padded)
    share = C // heads
    for b, top, left in np.ndindex(B, padded.shape[2] // window, padded.shape[3] // window):
        area = (b, slice(None), *(slice(i * window, (i + 1) * window) for i in (top, left)))
        tokens = padded[area].reshape(C, -1).T
        centred = tokens - tokens.mean(1, keepdims=True)
        normed = centred / np.sqrt(tokens.var(1, keepdims=True) + 1e-5)
        normed = normed * weights["norm.weight"] + weights["norm.bias"]
        qkv = (normed @ weights["qkv.weight"].T + weights["qkv.bias"]).reshape(-1, heads, 3 * share)
        heard = []
        for head in range(heads):
            q, k, v = np.split(qkv[:, head], 3, axis=1)
            scores = q @ k.T / np.sqrt(share)
            for i, j in np.ndindex(*scores.shape):
                rows, columns = abs(i // window - j // window), abs(i % window - j % window)
                scores[i, j] += weights["attention_biases"][head, rows * window + columns]
            chance = np.exp(scores - scores.max(1, keepdims=True))
            heard.append(chance / chance.sum(1, keepdims=True) @ v)
        y = np.concatenate(heard, 1) @ weights["proj.weight"].T + weights["proj.bias"]
        out[area] = y.T.reshape(C, window, window)
    return out[:, :, :H, :W]


@pytest.mark.parametrize("engine", ["reference", "openvino"])
def test_refined_masks_are_the_coarse_ones_and_detail(engine: str) -> None:
    """Enlarged bilinearly, plus the product of a token's MLP and the map twice as fine."""
    C, N, h = SMALL_NANO.channels, 2, 6
    rng = np.random.default_rng(5)
    inputs = {
        "masks": rng.standard_normal((N, 4, h, h)),
        "tokens": rng.standard_normal((N, 4, C)),
        "upscaled": rng.standard_normal((N, C // 8, h, h)),
        "finest": rng.standard_normal((N, REFINED_CHANNELS, 2 * h, 2 * h)),
    }
    inputs = {name: array.astype(np.float32) for name, array in inputs.items()}

    def part(scope: Scope, config: TrackerConfig, **x: Tensor) -> dict[str, Tensor]:
        at = scope / "sam_mask_decoder"
        y = refine(at, config, x["masks"], x["tokens"], x["upscaled"], x["finest"])
        return {"y": y}

    found = bench(engine).run(part, **inputs)["y"]

    expected = refined(small_weights(SMALL_NANO), **inputs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerances.DECODER * np.ptp(expected))


def refined(weights: dict[str, Array], **given: Array) -> Array:
    """The same, in numpy: [N, 4, 2h, 2h]."""
    step = "sam_mask_decoder.refinement."
    kernel, bias = (weights[f"{step}upscaling.{name}"] for name in ("weight", "bias"))
    N, _, h, _ = given["upscaled"].shape
    raised = np.einsum("nchw,cdij->ndhiwj", given["upscaled"], kernel)
    raised = raised.reshape(N, -1, 2 * h, 2 * h) + bias[:, None, None] + given["finest"]
    erf = np.vectorize(math.erf)
    raised = raised * 0.5 * (1 + erf(raised / np.sqrt(2)))
    detail = []
    for i in range(4):
        y = given["tokens"][:, i]
        for layer in range(3):
            key = f"{step}hypernetworks_mlps.{i}.layers.{layer}"
            y = y @ weights[f"{key}.weight"].T + weights[f"{key}.bias"]
            y = np.maximum(y, 0) if layer < 2 else y
        detail.append(np.einsum("nd,ndhw->nhw", y, raised))
    place = np.clip((np.arange(2 * h) + 0.5) / 2 - 0.5, 0, h - 1)
    low = np.minimum(place.astype(int), h - 2)
    share = place - low
    large = given["masks"]
    for axis in (2, 3):
        weight = np.expand_dims(share, tuple({0, 1, 2, 3} - {axis}))
        large = large.take(low, axis) * (1 - weight) + large.take(low + 1, axis) * weight
    return np.asarray(large + np.stack(detail, 1))


def test_a_mask_is_half_as_large_as_the_input() -> None:
    shapes = {name: str(value.type) for name, value in GRAPHS.trace(NANO)["decode"].outputs}

    assert shapes["masks"] == "f32[N,4,256,256]"
    assert shapes["best_mask"] == "f32[N,1,256,256]"


def test_every_number_of_the_config_has_a_range() -> None:
    numbers = {f.name for f in fields(NanoConfig) if f.type not in ("str", "bool", str, bool)}

    assert numbers <= set(RANGES) | set(NanoConfig.ranges())
    for name, (_, high) in NanoConfig.ranges().items():
        assert 3 * max(getattr(NANO, name)) <= high


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_wrong_value_is_an_option_error(name: str) -> None:
    refused = []
    for value in WRONG:
        try:
            find_config({**PLAIN, name: value})
        except OptionError as error:
            refused.append(str(error).replace("\n", ""))
    assert len(refused) >= len(WRONG) - 2
    assert all(text.isprintable() for text in refused)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"stages": [2, 2, 6]}, "needs four stages with their channels, heads and windows"),
        ({"stages": [60, 60, 60, 2]}, "182 blocks are more than 128"),
        ({"stage_heads": [3, 4, 5, 10]}, "do not divide the channels of their stages"),
        ({"stage_channels": [63, 128, 160, 320], "stage_heads": [1] * 4}, "which are odd"),
        ({"image_size": 1000}, "not a multiple of 32"),
        ({"mask_stride": 4}, "a config has no field `mask_stride`"),
    ],
)
def test_a_config_that_cannot_be_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=re.escape(problem)):
        find_config({**PLAIN, **given})


def test_the_config_reads_back_and_is_found_by_name() -> None:
    assert from_json(NANO.to_json()) == NANO
    assert config_of_any("samgraph-nano")[1] == NANO


def test_tensors_alone_say_that_it_is_a_nano() -> None:
    shapes = GRAPHS.weight_shapes(NANO)
    tensors = {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}

    family, config = recognise(read_source(tensors))

    assert (family.name, config) == ("nano", NANO)
