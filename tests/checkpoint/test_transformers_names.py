import re

import numpy as np
import pytest

from samgraph.checkpoint import Checkpoint, describe_foreign, with_meta_names
from samgraph.checkpoint.transformers_names import is_transformers, meta_name, to_meta
from samgraph.errors import CheckpointError
from tests.checkpoint.making import Array
from tests.checkpoint.tables import meta_shapes

PAIRS = {
    "vision_encoder.backbone.pos_embed_window": "image_encoder.trunk.pos_embed_window",
    "vision_encoder.backbone.patch_embed.projection.bias":
        "image_encoder.trunk.patch_embed.proj.bias",
    "vision_encoder.backbone.blocks.10.layer_norm1.weight":
        "image_encoder.trunk.blocks.10.norm1.weight",
    "vision_encoder.backbone.blocks.3.attn.proj.weight":
        "image_encoder.trunk.blocks.3.attn.proj.weight",
    "vision_encoder.backbone.blocks.3.mlp.proj_in.bias":
        "image_encoder.trunk.blocks.3.mlp.layers.0.bias",
    "vision_encoder.backbone.blocks.3.mlp.proj_out.bias":
        "image_encoder.trunk.blocks.3.mlp.layers.1.bias",
    "vision_encoder.backbone.blocks.3.proj.bias": "image_encoder.trunk.blocks.3.proj.bias",
    "vision_encoder.neck.convs.2.weight": "image_encoder.neck.convs.2.conv.weight",
    "prompt_encoder.mask_embed.layer_norm2.bias": "sam_prompt_encoder.mask_downscaling.4.bias",
    "prompt_encoder.not_a_point_embed.weight": "sam_prompt_encoder.not_a_point_embed.weight",
    "mask_decoder.transformer.layers.1.mlp.proj_out.bias":
        "sam_mask_decoder.transformer.layers.1.mlp.layers.1.bias",
    "mask_decoder.transformer.layers.0.self_attn.o_proj.weight":
        "sam_mask_decoder.transformer.layers.0.self_attn.out_proj.weight",
    "mask_decoder.transformer.layer_norm_final_attn.bias":
        "sam_mask_decoder.transformer.norm_final_attn.bias",
    "mask_decoder.upscale_layer_norm.weight": "sam_mask_decoder.output_upscaling.1.weight",
    "mask_decoder.output_hypernetworks_mlps.2.proj_in.bias":
        "sam_mask_decoder.output_hypernetworks_mlps.2.layers.0.bias",
    "mask_decoder.output_hypernetworks_mlps.2.layers.0.bias":
        "sam_mask_decoder.output_hypernetworks_mlps.2.layers.1.bias",
    "mask_decoder.output_hypernetworks_mlps.2.proj_out.bias":
        "sam_mask_decoder.output_hypernetworks_mlps.2.layers.2.bias",
    "mask_decoder.pred_obj_score_head.layers.0.bias":
        "sam_mask_decoder.pred_obj_score_head.layers.1.bias",
    "memory_attention.layer_norm.weight": "memory_attention.norm.weight",
    "memory_attention.layers.0.cross_attn_image.o_proj.bias":
        "memory_attention.layers.0.cross_attn_image.out_proj.bias",
    "memory_encoder.mask_downsampler.layers.3.conv.weight":
        "memory_encoder.mask_downsampler.encoder.9.weight",
    "memory_encoder.mask_downsampler.layers.3.layer_norm.weight":
        "memory_encoder.mask_downsampler.encoder.10.weight",
    "memory_encoder.mask_downsampler.final_conv.bias":
        "memory_encoder.mask_downsampler.encoder.12.bias",
    "memory_encoder.memory_fuser.layers.1.scale": "memory_encoder.fuser.layers.1.gamma",
    "memory_encoder.memory_fuser.layers.1.pointwise_conv2.bias":
        "memory_encoder.fuser.layers.1.pwconv2.bias",
    "memory_encoder.projection.weight": "memory_encoder.out_proj.weight",
    "object_pointer_proj.proj_out.weight": "obj_ptr_proj.layers.2.weight",
    "occlusion_spatial_embedding_parameter": "no_obj_embed_spatial",
    "mask_downsample.weight": "mask_downsample.weight",
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_a_name_becomes_the_one_meta_uses(name: str) -> None:
    assert meta_name(name) == PAIRS[name]
    assert PAIRS[name] in meta_shapes("2.1", "tiny")


SIGNS: dict[str, Array] = {
    "vision_encoder.backbone.patch_embed.projection.weight": np.zeros((96, 3, 7, 7), np.float32),
    "prompt_encoder.point_embed.weight": np.arange(1024, dtype=np.float32).reshape(4, 256),
}


def test_the_point_embeddings_are_split_into_their_rows() -> None:
    renamed = to_meta(SIGNS, "a")

    for row in range(4):
        piece = renamed[f"sam_prompt_encoder.point_embeddings.{row}.weight"]
        assert piece.shape == (1, 256)
        np.testing.assert_array_equal(piece[0], SIGNS["prompt_encoder.point_embed.weight"][row])


def test_the_shared_matrix_may_be_there_twice_if_it_is_the_same() -> None:
    matrix = np.ones((2, 128), np.float32)
    twice = {
        "shared_image_embedding.positional_embedding": matrix,
        "prompt_encoder.shared_embedding.positional_embedding": matrix.copy(),
    }
    target = "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"

    assert list(to_meta(twice, "a")) == [target]
    twice["shared_image_embedding.positional_embedding"] = matrix * 2
    with pytest.raises(CheckpointError, match=re.escape(f"two different tensors for `{target}`")):
        to_meta(twice, "a")


def test_the_format_is_recognised_and_described() -> None:
    assert is_transformers(SIGNS)
    assert not is_transformers(meta_shapes("2.1", "tiny"))
    assert describe_foreign(SIGNS) == "SAM 2, saved by transformers without its video memory"
    assert (
        "image_encoder.trunk.patch_embed.proj.weight" in with_meta_names(Checkpoint(SIGNS)).tensors
    )
