"""Small models of the families beside SAM 2 with known weights, for tests without golden files."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from samgraph.graph import Array
from samgraph.models.edgetam.config import EdgeTamConfig
from samgraph.models.efficienttam.config import EfficientTamConfig
from samgraph.models.loading import find_config
from samgraph.models.nano.config import NanoConfig
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.predict.model import Model, load
from tests import weights

_SHARED: dict[str, Any] = {
    "image_size": 128,
    "channels": 64,
    "memory_channels": 16,
    "decoder_feedforward": 64,
    "memory_layers": 2,
    "memory_feedforward": 64,
    "fuser_layers": 1,
    "norm_eps": 1e-6,
}
EDGETAM = EdgeTamConfig(
    name="small edgetam",
    stage_channels=(8, 16, 24, 32),
    stages=(1, 1, 3, 1),
    latents=8,
    latent_side=4,
    **_SHARED,
)
_VIT: dict[str, Any] = {"embed_dim": 32, "heads": 2, "blocks": 3, "global_blocks": (1,)}
_VIT |= {"window": 3, "position_side": 5, **_SHARED}
EFFICIENTTAM = EfficientTamConfig(name="small efficienttam", **_VIT)
POOLED_SCORES = EfficientTamConfig(name="small efficienttam 1", pooling="scores", **_VIT)
POOLED_KEYS = EfficientTamConfig(name="small efficienttam 2", pooling="keys", **_VIT)
SMALL_NANO = NanoConfig(
    name="small nano",
    stage_channels=(8, 16, 24, 32),
    stages=(1, 1, 2, 1),
    stage_heads=(1, 2, 3, 4),
    windows=(4, 4, 3, 5),
    obeys_clicks=False,
    **_SHARED,
)
SISTERS: dict[str, TrackerConfig] = {
    config.name: config
    for config in (EDGETAM, EFFICIENTTAM, POOLED_SCORES, POOLED_KEYS, SMALL_NANO)
}


def disc() -> npt.NDArray[np.uint8]:
    """A bright disc on a striped ground: [48, 80, 3]."""
    y, x = np.mgrid[:48, :80]
    ground = 60 + 40 * ((x // 8) % 2)
    picture = np.where((x - 26) ** 2 + (y - 22) ** 2 < 150, 230, ground)
    return np.repeat(picture[..., None], 3, axis=2).astype(np.uint8)


@cache
def small_weights(config: TrackerConfig, seed: int = 3) -> dict[str, Array]:
    """Every tensor of a checkpoint; objects are always present."""
    family, _ = find_config(config)
    found = dict(weights.state(family.weight_shapes(config), seed))
    found["sam_mask_decoder.pred_obj_score_head.layers.2.bias"] += 20
    return found


@cache
def small_sister(name: str, engine: str = "openvino", approximation: str | None = None) -> Model:
    """A model, loaded once for all tests."""
    config = SISTERS[name]
    return load(
        small_weights(config),
        config=config,
        device="cpu",
        engine=engine,
        threads=2,
        approximation=approximation,
    )
