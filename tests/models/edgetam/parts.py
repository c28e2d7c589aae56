"""Trunk, perceiver and memory attention of EdgeTAM, under the names of its golden file."""

from collections.abc import Iterator

import numpy as np

from samgraph.graph import Array, Scope, Tensor
from samgraph.graph.dims import floor_divide
from samgraph.models.edgetam import memory as memory_module
from samgraph.models.edgetam import perceiver, repvit
from samgraph.models.edgetam.config import EdgeTamConfig
from samgraph.models.sam2.layers import conv2d, to_tokens, width
from samgraph.models.sam2.neck import neck
from samgraph.models.sam2.positions import sine_grid, token_positions
from samgraph.ops.axial_rope import rotation_tables
from tests.golden.reading import Golden
from tests.models.sam2 import memory_parts
from tests.models.sam2.bench import Bench
from tests.models.sister_components import attended_bank, attention_inputs, bank_types, rotated

Named = Iterator[tuple[str, Array]]
CASES = "abcdefg"


def encoder(golden: Golden, bench: Bench) -> Named:
    """The image encoder step by step, and its graph."""
    image = golden.input("in_image")
    yield from bench.run(_steps, image=image).items()
    yield from image_encoder(golden, bench)


def image_encoder(golden: Golden, bench: Bench) -> Named:
    """The graph of the image encoder."""
    whole = bench.graph("image_encoder", image=golden.input("in_image"))
    embedding = whole["embedding"]
    yield "enc_fpn2", embedding
    yield "enc_top_HWBC", embedding.reshape(*embedding.shape[:2], -1).transpose(2, 0, 1)
    yield "enc_conv_s0", whole["fine_0"]
    yield "enc_conv_s1", whole["fine_1"]


def _steps(at: Scope, config: EdgeTamConfig, image: Tensor) -> dict[str, Tensor]:
    body, decoder = at / "image_encoder" / "trunk" / "body", at / "sam_mask_decoder"
    half = config.stage_channels[0] // 2
    found = {
        "enc_stem_conv1": repvit.conv_norm(
            body / "stem" / "conv1", config, image, half, 3, stride=2
        )
    }
    x = found["enc_stem"] = repvit.stem(body / "stem", config, image)
    for i, count in enumerate(config.stages):
        stage = body / f"stages_{i}"
        if i > 0:
            found |= _down(stage / "downsample", config, x, i)
            x = found[f"enc_s{i}_down"]
        for j in range(count):
            if (i, j) == (0, 0):
                found |= _first_block(stage / "blocks" / 0, config, x)
            x = repvit.block(stage / "blocks" / j, config, x, has_gate=j % 2 == 0)
            found[f"enc_s{i}_block{j:02d}"] = x
    maps = repvit.repvit(body, config, image)
    levels = neck(at / "image_encoder" / "neck", config, maps)
    for i, (stage_map, level) in enumerate(zip(maps, levels, strict=True)):
        found |= {f"enc_stage{i}": stage_map, f"enc_fpn{i}": level}
    found["enc_conv_s0"] = conv2d(decoder / "conv_s0", levels[0], config.channels // 8, 1)
    found["enc_conv_s1"] = conv2d(decoder / "conv_s1", levels[1], config.channels // 4, 1)
    return found


def _down(at: Scope, config: EdgeTamConfig, x: Tensor, i: int) -> dict[str, Tensor]:
    C = width(x, 1)
    pre = repvit.block(at / "pre_block", config, x, has_gate=False)
    small = repvit.conv_norm(at / "spatial_downsample", config, pre, C, 3, stride=2, groups=C)
    wide = repvit.conv_norm(at / "channel_downsample", config, small, config.stage_channels[i], 1)
    steps = {"down_pre_block": pre, "down_spatial": small, "down_channel": wide}
    steps["down"] = repvit.downsample(at, config, x, config.stage_channels[i])
    return {f"enc_s{i}_{name}": value for name, value in steps.items()}


def _first_block(at: Scope, config: EdgeTamConfig, x: Tensor) -> dict[str, Tensor]:
    mixed = repvit.token_mixer(at / "token_mixer", config, x)
    gated = repvit.squeeze_excite(at / "se", mixed)
    channels = repvit.channel_mixer(at / "channel_mixer", config, gated)
    steps = {"token_mixer": mixed, "se": gated, "channel_mixer": channels}
    return {f"enc_s0_block00_{name}": value for name, value in steps.items()}


def tables(golden: Golden, bench: Bench) -> Named:
    """What depends on nothing learned."""
    config = bench.config
    assert isinstance(config, EdgeTamConfig)
    for name, side in (("q", config.grid), ("self", config.grid), ("k", config.latent_side)):
        cos, sin = rotation_tables((side, side), config.channels, config.rope_theta)
        yield from ((f"rope_{name}_cos", cos), (f"rope_{name}_sin", sin))
    for level in range(4):
        side = config.image_size // (4 << level)
        yield f"enc_pos{level}", sine_grid(config.channels, side, side)[None]
    yield "mem_pos_enc_dense", sine_grid(config.memory_channels, config.grid, config.grid)[None]
    local = token_positions(config.memory_channels, config.latent_side)
    none = np.zeros((config.latents, config.memory_channels), np.float32)
    yield "mem_pos_enc", np.concatenate([none, local])[None]
    yield "perc_pos_1d", np.stack([none, none])
    yield "perc_pos_2d", np.stack([local, local])


def memory_encoder(golden: Golden, bench: Bench) -> Named:
    """Dense memories as of SAM 2, and what is stored of them."""
    for name, array in memory_parts.memory_encoder(golden, bench):
        if not name.endswith(("present", "absent")):
            yield name, array
            continue
        yield f"{name}_dense", array
        yield name, bench.run(_stored, memory=np.ascontiguousarray(array))["stored"]


def _stored(at: Scope, config: EdgeTamConfig, memory: Tensor) -> dict[str, Tensor]:
    return {"stored": perceiver.perceiver(at / "spatial_perceiver", config, memory)}


def perceiver_steps(golden: Golden, bench: Bench) -> Named:
    """Every step of the perceiver, for two objects."""
    config = bench.config
    assert isinstance(config, EdgeTamConfig)
    outputs = bench.run(_perceived, memory=golden.input("in_perc"))
    stored = outputs.pop("stored")
    yield "perc_1d", stored[:, : config.latents]
    yield "perc_2d", stored[:, config.latents :]
    yield from outputs.items()


def _perceived(at: Scope, config: EdgeTamConfig, memory: Tensor) -> dict[str, Tensor]:
    scope, (N, C) = at / "spatial_perceiver", (memory.shape[0], config.memory_channels)
    n = config.latent_side**2
    cells = to_tokens(memory)
    position = token_positions(C, config.grid)[None]
    starts = {
        "1d": perceiver._start(scope, "latents", N, config.latents, C),
        "2d": perceiver._start(scope, "latents_2d", N, n, C).reshape(N * n, 1, C),
    }
    found = {"stored": perceiver.perceiver(scope, config, memory)}
    for path, x in starts.items():
        for i in range(config.perceiver_layers):
            layer = scope / "layers" / i
            k, v = perceiver.keys_values(layer / "attn", config, "norm_x", cells)
            if path == "1d":
                k, v = k + position, v + position
            else:
                k, v = perceiver.windows(config, k), perceiver.windows(config, v)
            x = _layer_steps(layer, config, x, k, v, f"perc_{path}_layer{i}", found)
    return found


def _layer_steps(
    at: Scope,
    config: EdgeTamConfig,
    x: Tensor,
    k: Tensor,
    v: Tensor,
    name: str,
    found: dict[str, Tensor],
) -> Tensor:
    """One kind of latents through a layer; every step is noted before its residual sum."""
    for step in ("attn", "ff", "self_attn", "self_ff"):
        if step == "attn":
            y = perceiver.attend(at / step, config, x, k, v)
        elif step == "self_attn":
            y = perceiver.self_attention(at / step, config, x)
        else:
            y = perceiver.feedforward(at / step, config, x)
        found[f"{name}_{step}"] = y
        x = x + y
    found[name] = x
    return x


def memory_attention(golden: Golden, bench: Bench, cases: str = CASES) -> Named:
    """One to seven frames with pointers or without."""
    config = bench.config
    for case in cases:
        given = attention_inputs(golden, config, case)
        outputs = bench.run(_attended, bank_types(config), **given)
        yield f"attn_{case}_out", outputs.pop("out").transpose(1, 0, 2)
        if case == "b":
            yield from ((f"attn_b_{name}", array) for name, array in outputs.items())
            yield from _rotation(bench, given)


def _attended(at: Scope, config: EdgeTamConfig, **given: Tensor) -> dict[str, Tensor]:
    return attended_bank(
        at,
        config,
        **given,
        attend=memory_module.attend,
        reorder=_reordered,
        unrotated=config.latents,
    )


def _reordered(config: EdgeTamConfig, x: Tensor) -> Tensor:
    """Tokens as the model recalls them: windowed latents of all frames first."""
    N, tokens, C = x.shape
    frames = floor_divide(tokens, config.memory_tokens)
    return memory_module.rotated_first(config, x.reshape(N, frames, config.memory_tokens, C))


def _rotation(bench: Bench, given: dict[str, Array]) -> Named:
    """Rotated queries and keys, the keys in the order of the golden file."""
    config = bench.config
    assert isinstance(config, EdgeTamConfig)
    T, L, n = config.memory_tokens, config.latents, config.latent_side**2
    frames = given["frames"].shape[1] // T
    names = {"current": "current", "memory": "frames", "position": "frame_position"}
    outputs = bench.run(_rotated, **{name: given[key] for name, key in names.items()})
    yield "attn_b_layer0_q_rope", outputs["attn_b_layer0_q_rope"]
    k = outputs["attn_b_layer0_k_rope"]
    C = k.shape[-1]
    windowed = k[:, :, : frames * n].reshape(1, 1, frames, n, C)
    rest = k[:, :, frames * n : frames * T].reshape(1, 1, frames, L, C)
    joined = np.concatenate([rest, windowed], axis=3)
    yield "attn_b_layer0_k_rope", joined.reshape(1, 1, frames * T, C)


def _rotated(
    at: Scope, config: EdgeTamConfig, current: Tensor, memory: Tensor, position: Tensor
) -> dict[str, Tensor]:
    tokens, positions = (_reordered(config, x) for x in (memory, position))
    unrotated = width(memory, 1) // config.memory_tokens * config.latents
    return rotated(at, config, current, tokens, positions, unrotated, config.latent_side)
