"""The engine's own ops in torch's functions: for the CPU, and where Triton is missing."""

import math
from typing import Any

import torch
from torch.nn import functional

from samgraph.engines.torch.ops.conv_norm import ConvNormAttributes
from samgraph.engines.torch.ops.fused_linear import LinearAttributes
from samgraph.engines.torch.products import ACTIVATIONS, PRODUCTS, Rule
from samgraph.engines.torch.rules import RULES
from samgraph.engines.torch.tensors import widen

Pair = tuple[int, int]


def fused_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    **attributes: Any,
) -> torch.Tensor:
    """One function after another, in float32 but for the product."""
    at = LinearAttributes(**attributes)
    if at.eps:
        x = functional.layer_norm(widen(x), x.shape[-1:], eps=at.eps)
    y = widen(PRODUCTS["linear"](x.to(weight.dtype), weight))
    y = y + widen(bias) if at.biased else y
    y = ACTIVATIONS[at.activation](y)
    if at.pool:
        B, H, W, C = y.shape
        y = y.reshape(B, H // 2, 2, W // 2, 2, C).amax((2, 4))
    if at.rotated:
        half = at.width // 2
        pairs = y[..., : at.rotated].unflatten(-1, (-1, 2, half)).mT.flatten(-3)
        rotated = RULES["axial_rope"](pairs, **at.rope)
        halves = rotated.unflatten(-1, (-1, half, 2)).mT.flatten(-3)
        y = torch.cat([halves, y[..., at.rotated :]], -1)
    if residual is not None:
        y = y + widen(residual)
    return y.to(dtype or (weight if residual is None else residual).dtype)


def offset_norm(
    x: torch.Tensor,
    offset: torch.Tensor,
    scale: torch.Tensor | None = None,
    shift: torch.Tensor | None = None,
    *,
    eps: float,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The sum, then a layer norm."""
    y = functional.layer_norm(widen(x) + widen(offset), x.shape[-1:], scale, shift, eps)
    return y.to(dtype or x.dtype)


def fused_mlp(
    x: torch.Tensor,
    inner: torch.Tensor,
    inner_bias: torch.Tensor,
    outer: torch.Tensor,
    outer_bias: torch.Tensor,
    *,
    eps: float,
    activation: str,
) -> torch.Tensor:
    """Two linear layers."""
    hidden = fused_linear(x, inner, inner_bias, eps=eps, activation=activation)
    return fused_linear(hidden, outer, outer_bias, x)


def window_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_bias: torch.Tensor,
    v_bias: torch.Tensor,
    *,
    heads: int,
    scale: float,
    window: Pair,
) -> torch.Tensor:
    """Partition into windows, attention, unpartition."""
    pool = k.shape[1] // q.shape[1]
    small = (window[0] // pool, window[1] // pool)
    cut = (_cut(q, small, torch.zeros_like(k_bias)), _cut(k, window, k_bias))
    y = PRODUCTS["attention"](*cut, _cut(v, window, v_bias), heads=heads, scale=scale)
    B, H, W, C = q.shape
    down, across = -(-H // small[0]), -(-W // small[1])
    whole = y.reshape(B, down, across, *small, C).transpose(2, 3)
    return whole.reshape(B, down * small[0], across * small[1], C)[:, :H, :W]


def _cut(x: torch.Tensor, window: Pair, fill: torch.Tensor) -> torch.Tensor:
    """[B, H, W, C] -> [B*n, h*w, C], padded with `fill`."""
    (B, H, W, C), (h, w) = x.shape, window
    down, across = -(-H // h), -(-W // w)
    if (down * h, across * w) != (H, W):
        whole = fill.to(x.dtype).expand(B, down * h, across * w, C).clone()
        whole[:, :H, :W] = x
        x = whole
    split = x.reshape(B, down, h, across, w, C).transpose(2, 3)
    return split.reshape(B * down * across, h * w, C)


def image_to_tokens(
    image: torch.Tensor,
    queries: torch.Tensor,
    keys: torch.Tensor,
    scores: torch.Tensor,
    values: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    *,
    heads: int,
    eps: float,
) -> torch.Tensor:
    """All heads at once, then the norm."""
    N, T, _ = keys.shape
    k, v = (widen(x).reshape(N, T, heads, -1).transpose(1, 2) for x in (keys, values))
    fit = widen(queries)[:, None] @ k.mT + widen(scores).mT[:, :, None]
    y = widen(image) + (torch.softmax(fit, -1) @ v).sum(1)
    y = functional.layer_norm(y, y.shape[-1:], widen(scale), widen(shift), eps)
    return y.to(image.dtype)


def upscale_masks(
    image: torch.Tensor,
    dc1: torch.Tensor,
    dc1_bias: torch.Tensor,
    feat_s1: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    dc2: torch.Tensor,
    dc2_bias: torch.Tensor,
    feat_s0: torch.Tensor,
    hyper_in: torch.Tensor,
    *,
    eps: float,
) -> torch.Tensor:
    """One function after another, cells in nested order."""
    N, cells, _ = image.shape
    side = math.isqrt(cells)
    x = functional.linear(widen(image), widen(dc1), widen(dc1_bias)).reshape(N, 4 * cells, -1)
    x = x + _as_cells(widen(feat_s1), side)
    x = functional.layer_norm(x, x.shape[-1:], widen(scale), widen(shift), eps)
    x = functional.linear(functional.gelu(x), widen(dc2), widen(dc2_bias))
    x = functional.gelu(x.reshape(N, 16 * cells, -1) + _as_cells(widen(feat_s0), side))
    y = (widen(hyper_in) @ x.mT).reshape(N, -1, side, side, 2, 2, 2, 2)
    y = y.permute(0, 1, 2, 4, 6, 3, 5, 7).reshape(N, -1, 4 * side, 4 * side)
    return y.to(image.dtype)


def _as_cells(x: torch.Tensor, side: int) -> torch.Tensor:
    """A feature map [M, A, H, H] as a list of cells [M, H*H, A] in nested order."""
    if x.ndim == 3:
        return x
    M, A, H, _ = x.shape
    times = (H // side).bit_length() - 1
    parts = (side, *(2,) * times)
    order = [axis for step in range(times + 1) for axis in (1 + step, 2 + times + step)]
    split = x.permute(0, 2, 3, 1).reshape(M, *parts, *parts, A)
    return split.permute(0, *order, split.ndim - 1).reshape(M, H * H, A)


def grouped_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, activation: str = "none"
) -> torch.Tensor:
    """One batched product."""
    y = torch.einsum("ngi,goi->ngo", widen(x), widen(weight)) + widen(bias)
    return ACTIVATIONS[activation](y).to(weight.dtype)


def bank_values(
    pages: torch.Tensor,
    frames: torch.Tensor,
    tokens: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Pages by number, then the tokens."""
    found = RULES["gather"](pages, frames, axis=0, batch=0).to(tokens.dtype)
    return torch.cat([found.flatten(1, 2), tokens], 1).to(dtype or tokens.dtype)


def bank_keys(
    pages: torch.Tensor,
    frames: torch.Tensor,
    tokens: torch.Tensor,
    times: torch.Tensor,
    slots: torch.Tensor,
    grid: torch.Tensor,
    positions: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The values plus their temporal and spatial position embeddings."""
    tagged = RULES["gather"](times, slots, axis=0, batch=0)[:, :, None] + grid
    embeddings = torch.cat([tagged.flatten(1, 2), positions], 1)
    return (bank_values(pages, frames, tokens) + embeddings).to(dtype or tokens.dtype)


def conv_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    **attributes: Any,
) -> torch.Tensor:
    """One function after another, in float32 but for the product."""
    at = ConvNormAttributes(**attributes)
    rows = weight.mT if at.depthwise else weight
    kernels = rows.reshape(len(rows), at.kernel, at.kernel, -1).permute(0, 3, 1, 2)
    groups = x.shape[1] if at.depthwise else 1
    y = PRODUCTS["conv2d"](x.to(weight.dtype), kernels, **at.pairs, groups=groups)
    y = widen(y).movedim(1, -1) + widen(bias)
    y = functional.layer_norm(y, y.shape[-1:], widen(scale), widen(shift), at.eps)
    return ACTIVATIONS[at.activation](y).movedim(-1, 1).to(dtype or x.dtype)


def enlarge_mask(
    mask: torch.Tensor,
    gain: torch.Tensor,
    offset: torch.Tensor,
    *,
    size: Pair,
    scale: float,
    shift: float,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """One function after another."""
    x = widen(mask) * gain + offset
    x = RULES["resize"](x, size=size, how="bilinear", antialias=False)
    return (torch.sigmoid(x) * scale + shift).to(dtype or mask.dtype)


def patch_embedding(
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    positions: torch.Tensor,
    *,
    kernel: int,
    stride: int,
    padding: int,
) -> torch.Tensor:
    """A convolution, then the sum in float32."""
    taps = weight.reshape(len(weight), image.shape[1], kernel, -1)[..., -kernel:]
    pairs = {"stride": (stride, stride), "padding": (padding, padding)}
    y = PRODUCTS["conv2d"](image.to(weight.dtype), taps, **pairs, groups=1)
    return widen(y).permute(0, 2, 3, 1) + widen(bias) + positions


FUSED: dict[str, Rule] = {
    "bank_keys": bank_keys,
    "bank_values": bank_values,
    "conv_norm": conv_norm,
    "enlarge_mask": enlarge_mask,
    "patch_embedding": patch_embedding,
    "fused_linear": fused_linear,
    "fused_mlp": fused_mlp,
    "grouped_linear": grouped_linear,
    "image_to_tokens": image_to_tokens,
    "offset_norm": offset_norm,
    "upscale_masks": upscale_masks,
    "window_attention": window_attention,
}
