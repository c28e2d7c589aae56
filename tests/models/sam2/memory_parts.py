"""Memory encoder and memory attention, under the names of the golden files."""

from collections.abc import Iterator

import numpy as np

from samgraph.graph import Array, Dim, Scope, Tensor
from samgraph.models.sam2 import memory_attention as attention
from samgraph.models.sam2 import memory_encoder as encoder
from samgraph.models.sam2.layers import conv2d, to_image
from samgraph.models.sam2.memory_attention import Attend
from samgraph.models.sam2.positions import sine_grid
from samgraph.models.sam2.tracker_config import TrackerConfig
from tests.golden.reading import Golden, disc_mask
from tests.models.sam2.bench import Bench

Named = Iterator[tuple[str, Array]]

ATTENTION = ("a", "b", "c", "pair_a", "pair_b", "pair_c")


def memory_encoder(golden: Golden, bench: Bench) -> Named:
    """Soft logits, the same hardened, and a disc, each with the object visible and occluded."""
    disc = np.where(disc_mask(bench.config.image_size), 10.0, -10.0).astype(np.float32)
    logits = golden.input("in_mem_logits")
    outputs = bench.run(
        encoded,
        pixels=golden.input("in_mem_pix").transpose(1, 0, 2),
        logits=np.concatenate([logits, logits, disc[None, None]]),
        binary=np.array([False, True, True]),
    )
    for state in ("present", "absent"):
        memory = outputs.pop(state)
        for i, path in enumerate(("logits", "binary", "disc")):
            yield f"mem_{path}_{state}", memory[i : i + 1]
    yield from ((f"mem_{name}", array[:1]) for name, array in outputs.items())


def memory_encoder_pair(golden: Golden, bench: Bench) -> Named:
    """Two objects on two images, the second occluded."""
    if "mem_pair_logits" not in golden.index:
        return
    outputs = bench.run(
        encoded,
        pixels=golden.input("in_mem_pair_pix").transpose(1, 0, 2),
        logits=golden.input("in_mem_pair_logits"),
        binary=np.array([False, False]),
    )
    yield "mem_pair_logits", np.concatenate([outputs["present"][:1], outputs["absent"][1:]])


def encoded(
    at: Scope, config: TrackerConfig, pixels: Tensor, logits: Tensor, binary: Tensor
) -> dict[str, Tensor]:
    """Every step of the memory encoder, and its result for a visible and an occluded object."""
    steep = encoder.steepen(logits, binary.reshape(logits.shape[0], 1, 1, 1))
    mask = encoder.mask_for_memory(steep)
    image = to_image(pixels, config.grid, config.grid)
    scope = at / "memory_encoder"
    small = encoder.shrink_mask(scope / "mask_downsampler" / "encoder", config, mask)
    projected = conv2d(scope / "pix_feat_proj", image, config.channels, 1)
    first = encoder.fuse(scope / "fuser" / "layers" / 0, config, projected + small)
    hidden = {
        state: at.builder.constant(np.full((1, 1, 1, 1), value, np.float32))
        for state, value in (("present", 0.0), ("absent", 1.0))
    }
    return {
        **{
            state: encoder.memory_encoder(at, config, image, mask, flag)
            for state, flag in hidden.items()
        },
        "mask_downsampler": small,
        "pix_feat_proj": projected,
        "fuser0": first,
        "fuser1": encoder.fuse(scope / "fuser" / "layers" / 1, config, first),
    }


def memory_attention(case: str, golden: Golden, bench: Bench) -> Named:
    """One to seven frames with their pointers; `pair` has two objects."""
    if f"in_attn_{case}_memory" not in golden.index:
        return
    current = golden.input("in_attn_pair_curr" if "pair" in case else "in_attn_curr")
    outputs = bench.run(
        attended,
        current=current.transpose(1, 0, 2),
        memory=golden.input(f"in_attn_{case}_memory").transpose(1, 0, 2),
        position=golden.input(f"in_attn_{case}_memory_pos").transpose(1, 0, 2),
    )
    yield f"attn_{case}_out", outputs.pop("out").transpose(1, 0, 2)
    if case == "b":
        yield from ((f"attn_b_{name}", array) for name, array in outputs.items())


def attended(
    at: Scope,
    config: TrackerConfig,
    current: Tensor,
    memory: Tensor,
    position: Tensor,
    attend: Attend = attention.rope_attention,
    unrotated: Dim | None = None,
) -> dict[str, Tensor]:
    """The whole, and each layer's attentions before their shortcuts.

    `unrotated` tokens are at the end; by default what is left of whole frames.
    """
    tokens, channels = config.grid**2, config.channels
    if unrotated is None:
        unrotated = int(str(memory.shape[1])) % tokens
    sines = sine_grid(channels, config.grid, config.grid).reshape(1, channels, tokens)
    grid = at.builder.constant(sines.transpose(0, 2, 1))
    scope = at / "memory_attention"
    given = (memory, position, unrotated, attend)
    out = attention.memory_attention(scope, config, current, grid, *given)
    x, found = current + grid * attention._POSITION_SHARE, {"out": out}
    for i in range(config.memory_layers):
        layer = scope / "layers" / i
        y = attention.self_attention_step(layer, config, x, grid)
        z = attention.cross_attention_step(layer, config, y, grid, *given)
        x_next = attention.feedforward_step(layer, config, z)
        found |= {f"layer{i}_self": y - x, f"layer{i}_cross": z - y, f"layer{i}": x_next}
        x = x_next
    return found
