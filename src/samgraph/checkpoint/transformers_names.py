"""Names of SAM 2 weights in the transformers library, converted to those of Meta's files.

The two formats hold the same tensors, with two differences. The four point embeddings are one
tensor in transformers and four in Meta's files. The Fourier matrix of the prompt encoder occurs
once or twice in transformers (the image embedding shares it), once in Meta's files.

`Sam2VideoModel` saves everything; `Sam2Model` saves no memory, so its files can segment images
but not track.
"""

import re
from collections.abc import Collection, Mapping

import numpy as np

from samgraph.checkpoint.source_file import Array, short_name
from samgraph.errors import CheckpointError

FOURIER = "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"
POINTS = "prompt_encoder.point_embed.weight"
POINT_KINDS = 4  # background and foreground clicks, the two corners of a box
SIGNS = ("vision_encoder.backbone.patch_embed.projection.weight", POINTS)

# Each rule is applied to the result of the rules before it. The order matters twice: a head's
# `layers.0` is renamed before its `proj_in` takes that name, and special names come before general.
HEADS = r"(mask_decoder\.(?:output_hypernetworks_mlps\.\d+|iou_prediction_head"
HEADS += r"|pred_obj_score_head)|object_pointer_proj)"
BLOCKS = r"(vision_encoder\.backbone\.blocks\.\d+|mask_decoder\.transformer\.layers\.\d+)"
RULES: tuple[tuple[str, str], ...] = (
    (rf"^{HEADS}\.layers\.0\.", r"\1.layers.1."),
    (rf"^{HEADS}\.proj_in\.", r"\1.layers.0."),
    (rf"^{HEADS}\.proj_out\.", r"\1.layers.2."),
    (rf"^{BLOCKS}\.mlp\.proj_in\.", r"\1.mlp.layers.0."),
    (rf"^{BLOCKS}\.mlp\.proj_out\.", r"\1.mlp.layers.1."),
    (r"^vision_encoder\.backbone\.", "image_encoder.trunk."),
    (r"^image_encoder\.trunk\.patch_embed\.projection\.", "image_encoder.trunk.patch_embed.proj."),
    (r"^vision_encoder\.neck\.convs\.(\d+)\.", r"image_encoder.neck.convs.\1.conv."),
    (r"^prompt_encoder\.shared_embedding\.positional_embedding$", FOURIER),
    (r"^shared_image_embedding\.positional_embedding$", FOURIER),
    (r"^prompt_encoder\.mask_embed\.conv1\.", "sam_prompt_encoder.mask_downscaling.0."),
    (r"^prompt_encoder\.mask_embed\.layer_norm1\.", "sam_prompt_encoder.mask_downscaling.1."),
    (r"^prompt_encoder\.mask_embed\.conv2\.", "sam_prompt_encoder.mask_downscaling.3."),
    (r"^prompt_encoder\.mask_embed\.layer_norm2\.", "sam_prompt_encoder.mask_downscaling.4."),
    (r"^prompt_encoder\.mask_embed\.conv3\.", "sam_prompt_encoder.mask_downscaling.6."),
    (r"^prompt_encoder\.", "sam_prompt_encoder."),
    (r"^mask_decoder\.upscale_conv1\.", "sam_mask_decoder.output_upscaling.0."),
    (r"^mask_decoder\.upscale_layer_norm\.", "sam_mask_decoder.output_upscaling.1."),
    (r"^mask_decoder\.upscale_conv2\.", "sam_mask_decoder.output_upscaling.3."),
    (r"^mask_decoder\.", "sam_mask_decoder."),
    (r"^memory_encoder\.feature_projection\.", "memory_encoder.pix_feat_proj."),
    (r"^memory_encoder\.projection\.", "memory_encoder.out_proj."),
    (r"^memory_encoder\.memory_fuser\.(layers\.\d+)\.scale$", r"memory_encoder.fuser.\1.gamma"),
    (r"^memory_encoder\.memory_fuser\.", "memory_encoder.fuser."),
    (r"\.depthwise_conv\.", ".dwconv."),
    (r"\.pointwise_conv(\d)\.", r".pwconv\1."),
    (r"^no_memory_embedding$", "no_mem_embed"),
    (r"^no_memory_positional_encoding$", "no_mem_pos_enc"),
    (r"^memory_temporal_positional_encoding$", "maskmem_tpos_enc"),
    (r"^no_object_pointer$", "no_obj_ptr"),
    (r"^occlusion_spatial_embedding_parameter$", "no_obj_embed_spatial"),
    (r"^object_pointer_proj\.", "obj_ptr_proj."),
    (r"^temporal_positional_encoding_projection_layer\.", "obj_ptr_tpos_proj."),
    (r"\.layer_norm", ".norm"),
    (r"\.o_proj\.", ".out_proj."),
)  # fmt: skip

DOWNSAMPLER = (
    r"^memory_encoder\.mask_downsampler\.(?:layers\.(\d+)\.(conv|layer_norm)|final_conv)\."
)
FINAL_STEP = 12


def is_transformers(names: Collection[str]) -> bool:
    """Whether these are names of a SAM 2 saved by the transformers library."""
    return all(sign in names for sign in SIGNS)


def meta_name(name: str) -> str:
    """The name in Meta's files of the tensor `name` of transformers."""
    name = re.sub(DOWNSAMPLER, _downsampler_step, name)
    for pattern, replacement in RULES:
        name = re.sub(pattern, replacement, name)
    return name


def to_meta(tensors: Mapping[str, Array], source: str) -> dict[str, Array]:
    """The same tensors under the names of Meta's files; values are unchanged."""
    renamed: dict[str, Array] = {}
    for name, array in tensors.items():
        for new_name, tensor in _renamed(name, array, source):
            if new_name in renamed and not _same_bits(renamed[new_name], tensor):
                raise CheckpointError(
                    f"`{short_name(source)}` gives two different tensors for `{new_name}`",
                    got=f"`{name}` among them",
                )
            renamed[new_name] = tensor
    return renamed


def _renamed(name: str, array: Array, source: str) -> list[tuple[str, Array]]:
    """One tensor under its new name, or the rows of the point embeddings under four."""
    if name != POINTS:
        return [(meta_name(name), array)]
    if array.ndim != 2 or array.shape[0] != POINT_KINDS:
        raise CheckpointError(
            f"`{short_name(source)}`: `{POINTS}` is of another shape than in any SAM 2",
            got=list(array.shape),
            expected=f"{POINT_KINDS} rows",
        )
    rows = range(POINT_KINDS)
    return [(f"sam_prompt_encoder.point_embeddings.{i}.weight", array[i : i + 1]) for i in rows]


def _downsampler_step(found: re.Match[str]) -> str:
    """A layer of the mask downsampler; they are numbered conv, norm, activation, conv, ..."""
    layer, part = found.groups()
    step = FINAL_STEP if part is None else 3 * int(layer) + (part == "layer_norm")
    return f"memory_encoder.mask_downsampler.encoder.{step}."


def _same_bits(a: Array, b: Array) -> bool:
    same_type = a.shape == b.shape and a.dtype == b.dtype
    return same_type and bool(np.array_equal(a.reshape(-1).view("u1"), b.reshape(-1).view("u1")))
