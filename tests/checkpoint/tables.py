"""Names and shapes of the eight released checkpoints, built from what tells them apart."""

from collections.abc import Iterator

Shapes = dict[str, tuple[int, ...]]

# size: (width of the first stage, blocks a stage, side of the background position embedding)
SIZES: dict[str, tuple[int, tuple[int, ...], int]] = {
    "tiny": (96, (1, 2, 7, 2), 7),
    "small": (96, (1, 2, 11, 2), 7),
    "base-plus": (112, (2, 3, 16, 3), 14),
    "large": (144, (2, 6, 36, 4), 7),
}


def all_tables() -> dict[str, Shapes]:
    """The tables of all eight, by release name."""
    return {f"sam{v}-{size}": meta_shapes(v, size) for v in ("2", "2.1") for size in SIZES}


def meta_shapes(version: str, size: str) -> Shapes:
    """Every name and shape in the file Meta released."""
    parts = (_tokens(), _trunk(size), _memory(), _prompts(), _decoder(), _pointers())
    shapes = {name: shape for part in parts for name, shape in part}
    if version == "2.1":
        shapes["no_obj_embed_spatial"] = (1, 64)
        shapes.update(_affine("obj_ptr_tpos_proj", 64, 256))
    return shapes


Items = Iterator[tuple[str, tuple[int, ...]]]


def _affine(name: str, *shape: int) -> Items:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def _tokens() -> Items:
    yield "maskmem_tpos_enc", (7, 1, 1, 64)
    yield "no_mem_embed", (1, 1, 256)
    yield "no_mem_pos_enc", (1, 1, 256)
    yield "no_obj_ptr", (1, 256)


def _trunk(size: str) -> Items:
    width, stages, side = SIZES[size]
    trunk = "image_encoder.trunk"
    yield f"{trunk}.pos_embed", (1, width, side, side)
    yield f"{trunk}.pos_embed_window", (1, width, 8, 8)
    yield from _affine(f"{trunk}.patch_embed.proj", width, 3, 7, 7)
    index, before = 0, width
    for stage, blocks in enumerate(stages):
        after = width * 2**stage
        for _ in range(blocks):
            yield from _block(f"{trunk}.blocks.{index}", before, after)
            index, before = index + 1, after
        yield from _affine(f"image_encoder.neck.convs.{3 - stage}.conv", 256, after, 1, 1)


def _block(name: str, before: int, after: int) -> Items:
    yield from _affine(f"{name}.norm1", before)
    yield from _affine(f"{name}.attn.qkv", 3 * after, before)
    yield from _affine(f"{name}.attn.proj", after, after)
    yield from _affine(f"{name}.norm2", after)
    yield from _affine(f"{name}.mlp.layers.0", 4 * after, after)
    yield from _affine(f"{name}.mlp.layers.1", after, 4 * after)
    if before != after:
        yield from _affine(f"{name}.proj", after, before)


def _attention(name: str, inner: int, memory: int = 256) -> Items:
    yield from _affine(f"{name}.q_proj", inner, 256)
    yield from _affine(f"{name}.k_proj", inner, memory)
    yield from _affine(f"{name}.v_proj", inner, memory)
    yield from _affine(f"{name}.out_proj", 256, inner)


def _memory() -> Items:
    yield from _affine("mask_downsample", 1, 1, 4, 4)
    for layer in range(4):
        name = f"memory_attention.layers.{layer}"
        yield from _attention(f"{name}.self_attn", 256)
        yield from _attention(f"{name}.cross_attn_image", 256, memory=64)
        yield from _affine(f"{name}.linear1", 2048, 256)
        yield from _affine(f"{name}.linear2", 256, 2048)
        for norm in (1, 2, 3):
            yield from _affine(f"{name}.norm{norm}", 256)
    yield from _affine("memory_attention.norm", 256)
    encoder = "memory_encoder.mask_downsampler.encoder"
    for step, (before, after) in enumerate(((1, 4), (4, 16), (16, 64), (64, 256))):
        yield from _affine(f"{encoder}.{3 * step}", after, before, 3, 3)
        yield from _affine(f"{encoder}.{3 * step + 1}", after)
    yield from _affine(f"{encoder}.12", 256, 256, 1, 1)
    yield from _affine("memory_encoder.pix_feat_proj", 256, 256, 1, 1)
    for layer in range(2):
        name = f"memory_encoder.fuser.layers.{layer}"
        yield f"{name}.gamma", (256,)
        yield from _affine(f"{name}.dwconv", 256, 1, 7, 7)
        yield from _affine(f"{name}.norm", 256)
        yield from _affine(f"{name}.pwconv1", 1024, 256)
        yield from _affine(f"{name}.pwconv2", 256, 1024)
    yield from _affine("memory_encoder.out_proj", 64, 256, 1, 1)


def _prompts() -> Items:
    name = "sam_prompt_encoder"
    yield f"{name}.pe_layer.positional_encoding_gaussian_matrix", (2, 128)
    for point in range(4):
        yield f"{name}.point_embeddings.{point}.weight", (1, 256)
    yield f"{name}.not_a_point_embed.weight", (1, 256)
    yield from _affine(f"{name}.mask_downscaling.0", 4, 1, 2, 2)
    yield from _affine(f"{name}.mask_downscaling.1", 4)
    yield from _affine(f"{name}.mask_downscaling.3", 16, 4, 2, 2)
    yield from _affine(f"{name}.mask_downscaling.4", 16)
    yield from _affine(f"{name}.mask_downscaling.6", 256, 16, 1, 1)
    yield f"{name}.no_mask_embed.weight", (1, 256)


def _decoder() -> Items:
    name = "sam_mask_decoder"
    for layer in range(2):
        block = f"{name}.transformer.layers.{layer}"
        yield from _attention(f"{block}.self_attn", 256)
        yield from _attention(f"{block}.cross_attn_token_to_image", 128)
        yield from _attention(f"{block}.cross_attn_image_to_token", 128)
        yield from _affine(f"{block}.mlp.layers.0", 2048, 256)
        yield from _affine(f"{block}.mlp.layers.1", 256, 2048)
        for norm in (1, 2, 3, 4):
            yield from _affine(f"{block}.norm{norm}", 256)
    yield from _attention(f"{name}.transformer.final_attn_token_to_image", 128)
    yield from _affine(f"{name}.transformer.norm_final_attn", 256)
    for token, count in (("iou_token", 1), ("mask_tokens", 4), ("obj_score_token", 1)):
        yield f"{name}.{token}.weight", (count, 256)
    yield f"{name}.output_upscaling.0.weight", (256, 64, 2, 2)
    yield f"{name}.output_upscaling.0.bias", (64,)
    yield from _affine(f"{name}.output_upscaling.1", 64)
    yield f"{name}.output_upscaling.3.weight", (64, 32, 2, 2)
    yield f"{name}.output_upscaling.3.bias", (32,)
    yield from _affine(f"{name}.conv_s0", 32, 256, 1, 1)
    yield from _affine(f"{name}.conv_s1", 64, 256, 1, 1)
    for mask in range(4):
        yield from _head(f"{name}.output_hypernetworks_mlps.{mask}", 32)
    yield from _head(f"{name}.iou_prediction_head", 4)
    yield from _head(f"{name}.pred_obj_score_head", 1)


def _head(name: str, outputs: int) -> Items:
    for layer, after in enumerate((256, 256, outputs)):
        yield from _affine(f"{name}.layers.{layer}", after, 256)


def _pointers() -> Items:
    yield from _head("obj_ptr_proj", 256)
