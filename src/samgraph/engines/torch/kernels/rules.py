"""Which kernel runs an op, and with which blocks; what no kernel takes goes to torch."""

import importlib.util
import math
from collections.abc import Mapping
from functools import cache

import torch

from samgraph.engines.torch.fused import FUSED
from samgraph.engines.torch.products import PRODUCTS, Rule
from samgraph.engines.torch.rules import RULES
from samgraph.engines.torch.tables import Table

Pair = tuple[int, int]
_WIDEST_NORM = 4096
_WIDEST_HEAD = 256
_MOST_TOKENS = 64
_NARROWEST = 16  # channels that the matrix units take


@cache
def kernel_rules() -> Mapping[str, Rule] | None:
    """The rule of every op that has a kernel; None where Triton is missing."""
    if importlib.util.find_spec("triton") is None:
        return None
    return {
        "attention": _attention,
        "conv_norm": _conv_norm,
        "enlarge_mask": _enlarge_mask,
        "fused_linear": _fused_linear,
        "gather": _gather,
        "grouped_linear": _grouped_linear,
        "image_to_tokens": _image_to_tokens,
        "layer_norm": _layer_norm,
        "paint_masks": _paint_masks,
        "patch_embedding": _patch_embedding,
        "window_attention": _window_attention,
    }


def _fused_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    eps: float = 0.0,
    activation: str = "none",
    pool: bool = False,
    rotated: int = 0,
    width: int = 0,
    grid: Pair = (1, 1),
    theta: float = 1.0,
    unrotated: int = 0,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    from samgraph.engines.torch.kernels.blocks import linear_blocks
    from samgraph.engines.torch.kernels.linear import linear
    from samgraph.engines.torch.kernels.rotation import Rotation

    *front, K = x.shape
    if pool:
        front = [front[0], front[1] // 2, front[2] // 2]
    N, rotation = len(weight), None
    if rotated:
        tokens = x.shape[-2]
        rotation = Rotation(grid, theta, width, rotated, tokens, tokens - unrotated)
    kind = dtype or (weight if residual is None else residual).dtype
    y = torch.empty((*front, N), dtype=kind, device=x.device)
    flat = as_rows(x)
    linear(
        flat,
        weight,
        bias,
        None if residual is None else _repeated_rows(residual),
        eps=eps,
        activation=activation,
        rotation=rotation,
        out=y.view(-1, N),
        blocks=linear_blocks(len(flat), N, K, x.dtype, weight.dtype, pools=pool),
        pool=x.shape[2] if pool else 0,
    )
    return y


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """[..., C] as [M, C]; copied only where rows do not lie one behind another."""
    flat = x.reshape(-1, x.shape[-1])
    return flat if flat.stride(1) == 1 else flat.contiguous()


def _repeated_rows(x: torch.Tensor) -> torch.Tensor:
    """As `as_rows`; of what is the same all along the first axis, that one part."""
    return as_rows(x[:1] if x.ndim > 2 and x.stride(0) == 0 else x)


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    heads: int,
    scale: float,
) -> torch.Tensor:
    from samgraph.engines.torch.kernels.attention import attention
    from samgraph.engines.torch.kernels.blocks import attention_blocks

    front, widths = q.shape[:-2], (q.shape[-1] // heads, v.shape[-1] // heads)
    empty = 0 in q.shape or 0 in v.shape
    blocks = attention_blocks(len(q) * heads, q.shape[-2], k.shape[-2], *widths, v.dtype)
    bias = None if mask is None else _key_bias(mask, len(q))
    unfit = mask is not None and bias is None
    if unfit or empty or max(widths) > _WIDEST_HEAD or blocks is None:
        args = (q, k, v) if mask is None else (q, k, v, mask)
        return PRODUCTS["attention"](*args, heads=heads, scale=scale)
    batch = [_batched(x) for x in (q, k, v)]
    y = attention(*batch, bias, heads=heads, scale=scale, blocks=blocks)
    return y.view(*front, *y.shape[1:])


def _key_bias(mask: torch.Tensor, batch: int) -> torch.Tensor | None:
    """A mask that is the same for all heads and queries as [B, S]."""
    if mask.ndim != 4 or mask.shape[1:3] != (1, 1) or mask.stride(3) != 1:
        return None
    return mask[:, 0, 0].expand(batch, -1)


def _batched(x: torch.Tensor) -> torch.Tensor:
    """[..., T, C] as [B, T, C] with channels that lie without gaps."""
    flat = x if x.ndim == 3 else x.reshape(-1, *x.shape[-2:])
    return flat if flat.stride(2) == 1 else flat.contiguous()


def _window_attention(
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
    from samgraph.engines.torch.kernels.blocks import window_blocks
    from samgraph.engines.torch.kernels.windows import window_attention

    width = q.shape[-1] // heads
    blocks = window_blocks(window, k.shape[1] // q.shape[1], width, q.dtype)
    if blocks is None or width > _WIDEST_HEAD:
        tensors = (q, k, v, k_bias, v_bias)
        return FUSED["window_attention"](*tensors, heads=heads, scale=scale, window=window)
    maps = [_map(x) for x in (q, k, v)]
    return window_attention(
        *maps, k_bias, v_bias, heads=heads, scale=scale, window=window, **blocks
    )


def _map(x: torch.Tensor) -> torch.Tensor:
    """A map whose pixels lie one behind another, channels without gaps."""
    row = x.stride(2)
    plain = x.stride(3) == 1 and x.stride(1) == row * x.shape[2]
    return x if plain and (len(x) == 1 or x.stride(0) == x.stride(1) * x.shape[1]) else x.contiguous()


def _layer_norm(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, *, eps: float
) -> torch.Tensor:
    from samgraph.engines.torch.kernels.norm import layer_norm

    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.shape[-1] > _WIDEST_NORM or not x.numel():
        return RULES["layer_norm"](x, scale, shift, eps=eps)
    layer_norm(as_rows(x), scale, shift, eps=eps, out=y.view(-1, x.shape[-1]))
    return y


def _gather(
    x: torch.Tensor | Table, index: torch.Tensor, *, axis: int, batch: int
) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return RULES["gather"](x, index, axis=axis, batch=batch)
    from samgraph.engines.torch.kernels.rows import gather_rows

    length = x.row_shape.numel()
    y = torch.empty((*index.shape, *x.row_shape), dtype=x.dtype, device=x.device)
    gather_rows(x.address, x.dtype, index.reshape(-1), length, y.view(-1, length))
    return y


def _image_to_tokens(
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
    from samgraph.engines.torch.kernels.image_to_tokens import image_to_tokens

    tensors = (image, queries, keys, scores, values, scale, shift)
    if keys.shape[1] > _MOST_TOKENS or image.shape[2] > _WIDEST_HEAD or not image.numel():
        return FUSED["image_to_tokens"](*tensors, heads=heads, eps=eps)
    cells = [_cells(image), _cells(queries)]
    tokens = [x if x.stride(2) == 1 else x.contiguous() for x in (keys, scores, values)]
    return image_to_tokens(*cells, *tokens, scale, shift, heads=heads, eps=eps)


def _cells(x: torch.Tensor) -> torch.Tensor:
    """An image [N, I, C] whose cells lie one behind another."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


def _grouped_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, activation: str = "none"
) -> torch.Tensor:
    from samgraph.engines.torch.kernels.grouped import grouped_linear

    rows = x if x.stride(2) == 1 else x.contiguous()
    return grouped_linear(rows, weight, bias, activation=activation)


def _paint_masks(
    image: torch.Tensor,
    grow: torch.Tensor,
    grow_bias: torch.Tensor,
    coarse: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    again: torch.Tensor,
    again_bias: torch.Tensor,
    fine: torch.Tensor,
    brushes: torch.Tensor,
    *,
    eps: float,
) -> torch.Tensor:
    from samgraph.engines.torch.kernels.paint import paint_masks

    widths = (image.shape[2], len(grow) // 4, len(again) // 4)
    tensors = (grow, grow_bias, coarse, scale, shift, again, again_bias, fine)
    if any(width & (width - 1) or width < _NARROWEST for width in widths):
        return FUSED["paint_masks"](image, *tensors, brushes, eps=eps)
    side = math.isqrt(image.shape[1])
    return paint_masks(_cells(image), *tensors, brushes.contiguous(), eps=eps, side=side)


def _conv_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    *,
    kernel: int,
    stride: int,
    padding: int,
    depthwise: bool,
    eps: float,
    activation: str = "none",
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    from samgraph.engines.torch.kernels.convolution import conv_norm, depthwise_norm

    C = len(weight)
    if C > _WIDEST_HEAD:
        return FUSED["conv_norm"](
            x, weight, bias, scale, shift, kernel=kernel, stride=stride, padding=padding,
            depthwise=depthwise, eps=eps, activation=activation, dtype=dtype,
        )  # fmt: skip
    last = x.permute(0, 2, 3, 1).contiguous()
    high, wide = ((side + 2 * padding - kernel) // stride + 1 for side in x.shape[2:])
    y = torch.empty((len(x), high, wide, C), dtype=dtype or x.dtype, device=x.device)
    tensors = (last, weight, bias, scale, shift)
    given = {"kernel": kernel, "padding": padding, "eps": eps}
    if depthwise:
        depthwise_norm(*tensors, **given, activation=activation, out=y)
    else:
        conv_norm(*tensors, **given, stride=stride, activation=activation, out=y)
    return y.permute(0, 3, 1, 2)


def _enlarge_mask(
    mask: torch.Tensor,
    gain: torch.Tensor,
    offset: torch.Tensor,
    *,
    size: Pair,
    scale: float,
    shift: float,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    from samgraph.engines.torch.kernels.masks import enlarge_mask

    kind = dtype or mask.dtype
    y = torch.empty((len(mask), 1, *size), dtype=kind, device=mask.device)
    plain = [x.contiguous() for x in (mask, gain, offset)]
    return enlarge_mask(*plain, scale=scale, shift=shift, out=y)


def _patch_embedding(
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    positions: torch.Tensor,
    *,
    kernel: int,
    stride: int,
    padding: int,
) -> torch.Tensor:
    from samgraph.engines.torch.kernels.patches import patches

    high, wide = positions.shape[1:3]
    y = torch.empty((len(image), high, wide, len(weight)), device=image.device)
    return patches(
        image.contiguous(),
        weight,
        bias,
        positions.contiguous(),
        kernel=kernel,
        stride=stride,
        padding=padding,
        out=y,
    )
