"""Image encoder and memory attention of EfficientTAM, under the names of its golden files."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from samgraph.graph import Array, Scope, Tensor
from samgraph.models.efficienttam.config import EfficientTamConfig
from samgraph.models.efficienttam.graphs import GRAPHS
from samgraph.models.efficienttam.pooled_attention import pooled_attention
from samgraph.models.efficienttam.vit import block, neck, patches, positions, vit
from samgraph.models.sam2 import hiera
from samgraph.models.sam2.layers import conv2d, layer_norm, layer_norm_2d
from samgraph.models.sam2.memory_attention import Attend, rope_attention
from samgraph.models.sam2.windows import partition
from tests.golden.reading import Golden
from tests.models.sam2 import components
from tests.models.sam2.bench import Bench, Part
from tests.models.sister_components import attended_bank, attention_inputs, bank_types, rotated

Named = Iterator[tuple[str, Array]]
CASES = "abcdefg"
# By the prefix of their names: the kind of pooling, and the cross-attention of several frames.
VARIANTS: dict[str, tuple[str, Attend]] = {
    "attn": ("none", rope_attention),
    "attn1": ("scores", pooled_attention),
    "attn2": ("keys", pooled_attention),
}


def encoder(golden: Golden, bench: Bench) -> Named:
    """The image encoder step by step, and its graph."""
    yield from bench.run(_steps, image=golden.input("in_image")).items()
    yield from image_encoder(golden, bench)


def image_encoder(golden: Golden, bench: Bench) -> Named:
    """The graph of the image encoder."""
    whole = bench.graph("image_encoder", image=golden.input("in_image"))["embedding"]
    yield "enc_fpn0", whole
    yield "enc_top_HWBC", whole.reshape(*whole.shape[:2], -1).transpose(2, 0, 1)


def _steps(at: Scope, config: EfficientTamConfig, image: Tensor) -> dict[str, Tensor]:
    trunk, level = at / "image_encoder" / "trunk", at / "image_encoder" / "neck" / "convs" / 0
    found = {"enc_patch_embed": patches(trunk / "patch_embed", config, image)}
    found["enc_pos_embed"] = positions(trunk, config)
    x = found["enc_patch_embed"] + found["enc_pos_embed"]
    for i in range(config.blocks):
        scope, is_global = trunk / "blocks" / i, i in config.global_blocks
        if i in (0, 2):
            side = config.grid if is_global else config.window
            normal = layer_norm(scope / "norm1", x, eps=config.norm_eps)
            windows = partition(normal, side, side)
            y = hiera.attention(scope / "attn", windows, config.embed_dim, config.heads, False)
            name = "attn_global" if is_global else "attn_windows"
            found[f"enc_block{i:02d}_{name}"] = y.reshape(-1, side, side, config.embed_dim)
        x = block(scope, config, x, is_global)
        found[f"enc_block{i:02d}"] = x
    stage = vit(trunk, config, image).transpose(0, 3, 1, 2)
    found["enc_stage0"] = stage
    found["enc_neck_conv_1x1"] = conv2d(level / "conv_1x1", stage, config.channels, 1, bias=False)
    found["enc_neck_norm_0"] = layer_norm_2d(level / "norm_0", found["enc_neck_conv_1x1"])
    found["enc_neck_conv_3x3"] = conv2d(
        level / "conv_3x3", found["enc_neck_norm_0"], config.channels, 3, padding=1, bias=False
    )
    return found | {"enc_fpn0": neck(at / "image_encoder" / "neck", config, stage)}


def memory_attention(golden: Golden, bench: Bench, cases: str = CASES) -> Named:
    """One to seven frames with pointers or without, in all variants."""
    assert isinstance(bench.config, EfficientTamConfig)
    for prefix, (pooling, attend) in VARIANTS.items():
        config = replace(bench.config, pooling=pooling)
        engine = bench.session.options.engine or "openvino"
        variant = Bench(config, bench.weights, engine, graph_set=GRAPHS)
        for case in cases:
            frames = golden.meta["attention_cases"][case]["memory_frames"]
            part = _PARTS[attend if frames > 1 else rope_attention]
            outputs = variant.run(
                part, bank_types(config), **attention_inputs(golden, config, case)
            )
            yield f"{prefix}_{case}_out", outputs.pop("out").transpose(1, 0, 2)
            if case == "b":
                yield from ((f"{prefix}_b_{name}", array) for name, array in outputs.items())


def tables(golden: Golden, bench: Bench) -> Named:
    """What depends on nothing learned: there is one level of features."""
    for name, array in components.tables(golden, bench):
        if name == "enc_pos2":
            yield "enc_pos0", array
        elif not name.startswith("enc_pos"):
            yield name, array


def rotation(golden: Golden, bench: Bench) -> Named:
    """The rotated queries and keys of a cross-attention."""
    config, (pointers, T) = bench.config, (8, bench.config.memory_tokens)
    given = {
        "current": golden.input("in_attn_curr"),
        "memory": golden.input("in_attn_b_memory"),
        "position": golden.input("in_attn_b_memory_pos"),
    }
    part = partial(rotated, unrotated=pointers, key_side=config.grid)
    outputs = bench.run(part, **{name: x.transpose(1, 0, 2) for name, x in given.items()})
    yield "attn_b_layer0_q_rope", outputs["attn_b_layer0_q_rope"]
    yield "attn_b_layer0_k_rope", outputs["attn_b_layer0_k_rope"][:, :, : 3 * T]


_PARTS: dict[Attend, Part] = {
    attend: partial(attended_bank, attend=attend) for attend in (rope_attention, pooled_attention)
}
