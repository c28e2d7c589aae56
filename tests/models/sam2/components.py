"""Every part of the model by itself, with the inputs and under the names of the golden files.

`run_components` gives, by golden name, what our functions and graphs compute. Some names come
more than once: from a part, and from the graph that contains it. All are to be compared.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from samgraph import ops
from samgraph.graph import Array, Scope, Tensor
from samgraph.models.sam2 import hiera, memory_bank, prompts
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import conv2d, to_image
from samgraph.models.sam2.neck import neck
from samgraph.models.sam2.positions import sine_grid, sine_time
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.ops.axial_rope import rotation_tables
from tests.golden.reading import Golden
from tests.models.sam2 import decoder_parts, memory_parts
from tests.models.sam2.bench import Bench, config_of

Named = Iterator[tuple[str, Array]]
Runner = Callable[[Golden, Bench], Named]


def run_components(golden: Golden, bench: Bench, parts: tuple[str, ...] = ()) -> Named:
    """Name and value of everything in the golden file, or of some parts.

    A part is a key of `PARTS`, or what stands before the colon of several.
    """
    for name, runner in PARTS.items():
        if not parts or name in parts or name.split(":")[0] in parts:
            yield from runner(golden, bench)


def encoder(golden: Golden, bench: Bench) -> Named:
    """The image encoder, step by step."""
    yield from bench.run(_encoder_steps, image=golden.input("in_image")).items()


def image_encoder(golden: Golden, bench: Bench) -> Named:
    """The graph of the image encoder."""
    whole = bench.graph("image_encoder", image=golden.input("in_image"))
    yield "enc_fpn2", whole["embedding"]
    yield "enc_conv_s0", whole["fine_0"]
    yield "enc_conv_s1", whole["fine_1"]


def _encoder_steps(at: Scope, config: Sam2Config, image: Tensor) -> dict[str, Tensor]:
    trunk, decoder = at / "image_encoder" / "trunk", at / "sam_mask_decoder"
    found = {"enc_patch_embed": hiera.patches(trunk / "patch_embed", config, image)}
    found["enc_pos_embed"] = hiera.positions(trunk, config)
    x = found["enc_patch_embed"] + found["enc_pos_embed"]
    for i, (stage, window, pools) in enumerate(hiera.block_plan(config)):
        x = hiera.block(trunk / "blocks" / i, config, x, stage, window, pools)
        found[f"enc_block{i:02d}"] = x
    maps = [x.transpose(0, 3, 1, 2) for x in hiera.hiera(trunk, config, image)]
    found |= {f"enc_stage{i}": x for i, x in enumerate(maps)}
    levels = neck(at / "image_encoder" / "neck", config, maps)
    found |= {f"enc_fpn{i}": x for i, x in enumerate(levels)}
    found["enc_conv_s0"] = conv2d(decoder / "conv_s0", levels[0], config.channels // 8, 1)
    found["enc_conv_s1"] = conv2d(decoder / "conv_s1", levels[1], config.channels // 4, 1)
    return found


def points(golden: Golden, bench: Bench) -> Named:
    """Points and boxes as tokens."""
    for case in ("point1", "points_b2", "box_as_points", "empty_point"):
        xy, labels = decoder_parts.points_of(golden, f"pe_{case}")
        yield f"pe_{case}_sparse", bench.run(_ended, xy=xy, labels=labels)["sparse"]
    for case in ("boxes_b2", "points_and_box"):
        corners = golden.input(f"pe_{case}_boxes").reshape(-1, 2, 2)
        kinds = np.tile(np.array([[2, 3]], np.int64), (len(corners), 1))
        if f"pe_{case}_coords" in golden.index:  # the reference puts a box after the points
            xy, labels = decoder_parts.points_of(golden, f"pe_{case}")
            corners, kinds = np.concatenate([xy, corners], 1), np.concatenate([labels, kinds], 1)
        yield f"pe_{case}_sparse", bench.run(_bare, xy=corners, labels=kinds)["sparse"]


def _ended(at: Scope, config: TrackerConfig, xy: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {"sparse": prompts.points(at / "sam_prompt_encoder", config, xy, labels)}


def _bare(at: Scope, config: TrackerConfig, xy: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {"sparse": prompts.embed_points(at / "sam_prompt_encoder", config, xy, labels)}


def dense(golden: Golden, bench: Bench) -> Named:
    """Masks, no masks, and the positions the decoder gives the image."""
    outputs = bench.run(_dense, mask=golden.input("in_mask_prompt"))
    yield from outputs.items()
    for name in golden.names("pe_"):
        if name.endswith("_dense") and name not in outputs:
            yield name, np.broadcast_to(outputs["pe_none_dense"], golden.shape(name))


def _dense(at: Scope, config: TrackerConfig, mask: Tensor) -> dict[str, Tensor]:
    scope, grid = at / "sam_prompt_encoder", config.grid
    none = prompts.no_mask(scope, config)
    return {
        "pe_mask_dense": prompts.mask(scope, config, mask),
        "pe_none_dense": to_image(ops.expand(none, 1, grid**2, config.channels), grid, grid),
        "pe_dense_pe": to_image(prompts.dense_positions(scope, config), grid, grid),
    }


def tables(golden: Golden, bench: Bench) -> Named:
    """What depends on nothing learned."""
    config = bench.config
    grid = (config.grid, config.grid)
    yield "rope_cos", rotation_tables(grid, config.channels, config.rope_theta)[0]
    yield "rope_sin", rotation_tables(grid, config.channels, config.rope_theta)[1]
    for level in range(4):
        side = config.image_size // (4 << level)
        yield f"enc_pos{level}", sine_grid(config.channels, side, side)[None]
    yield "mem_pos_enc", sine_grid(config.memory_channels, *grid)[None]


def pointer_times(golden: Golden, bench: Bench) -> Named:
    """Distances in time, and what pointers carry of them."""
    distances = (np.arange(-15, 16) / np.float32(15)).astype(np.float32)[None]
    outputs = bench.run(_times, times=distances)
    yield "tpos_sine_pe", outputs["sine"][0]
    if bench.config.pointer_time:  # every token of a pointer has the pointer's time
        split = memory_bank.tokens_per_pointer(bench.config)
        yield from (("tpos_proj", outputs["position"][0, i::split]) for i in range(split))


def _times(at: Scope, config: TrackerConfig, times: Tensor) -> dict[str, Tensor]:
    return {
        "sine": sine_time(times, config.channels),
        "position": memory_bank.pointer_positions(at, config, times),
    }


PARTS: dict[str, Runner] = {
    "encoder": encoder,
    "image_encoder": image_encoder,
    "points": points,
    "dense": dense,
    "tables": tables,
    "pointer_times": pointer_times,
    **{
        f"decoder:{name}": partial(decoder_parts.decoder, name)
        for name in decoder_parts.GROUPS
        if name != "all" and not name.startswith("sister")
    },
    "decode:click": partial(decoder_parts.decode, "click"),
    "decode:all": partial(decoder_parts.decode, "all"),
    "decode_prepared": decoder_parts.decode_prepared,
    **{f"heads:{case}": partial(decoder_parts.heads, case) for case in decoder_parts.HEADS},
    "mask_prompt": decoder_parts.mask_prompt,
    "memory_encoder": memory_parts.memory_encoder,
    "memory_encoder_pair": memory_parts.memory_encoder_pair,
    **{
        f"memory_attention:{case}": partial(memory_parts.memory_attention, case)
        for case in memory_parts.ATTENTION
    },
}

__all__ = ["PARTS", "Bench", "config_of", "run_components"]
