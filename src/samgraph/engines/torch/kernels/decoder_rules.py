"""Which kernels run the other ops: of the decoder, the memory encoder, and small ones."""

import math
from typing import Any

import torch

from samgraph.engines.torch.fused import FUSED
from samgraph.engines.torch.kernels import blocks as table
from samgraph.engines.torch.kernels.attention_rules import WIDEST_HEAD
from samgraph.engines.torch.kernels.bank import bank_rows
from samgraph.engines.torch.kernels.convolution import conv_norm as dense
from samgraph.engines.torch.kernels.convolution import depthwise_norm
from samgraph.engines.torch.kernels.grouped import grouped_linear as grouped
from samgraph.engines.torch.kernels.image_to_tokens import image_to_tokens as to_tokens
from samgraph.engines.torch.kernels.linear_rules import as_rows, fused_linear
from samgraph.engines.torch.kernels.masks import enlarge_mask as enlarge
from samgraph.engines.torch.kernels.norm import layer_norm as norm
from samgraph.engines.torch.kernels.patches import patches
from samgraph.engines.torch.kernels.tables import gather_rows, take_rows
from samgraph.engines.torch.kernels.upscaling import upscale_masks as upscale
from samgraph.engines.torch.ops.conv_norm import ConvNormAttributes
from samgraph.engines.torch.rules import RULES
from samgraph.engines.torch.tables import Table

Pair = tuple[int, int]
_WIDEST_NORM = 4096
_MOST_TOKENS = 64
_MANY_IMAGES = 8  # from which on copying what they share pays


def layer_norm(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, *, eps: float
) -> torch.Tensor:
    """The rule of `layer_norm`."""
    if x.shape[-1] > _WIDEST_NORM or not x.numel():
        return RULES["layer_norm"](x, scale, shift, eps=eps)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    norm(as_rows(x), scale, shift, eps=eps, out=y.view(-1, x.shape[-1]))
    return y


def offset_norm(
    x: torch.Tensor,
    offset: torch.Tensor,
    scale: torch.Tensor | None = None,
    shift: torch.Tensor | None = None,
    *,
    eps: float,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The rule of `offset_norm`."""
    if x.shape[-1] > _WIDEST_NORM or not x.numel():
        return FUSED["offset_norm"](x, offset, scale, shift, eps=eps, dtype=dtype)
    y = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
    norm(as_rows(x), scale, shift, eps=eps, out=y.view(-1, x.shape[-1]), offset=offset)
    return y


def gather(x: torch.Tensor | Table, index: torch.Tensor, *, axis: int, batch: int) -> torch.Tensor:
    """The rule of `gather`; of a table, through its address."""
    if isinstance(x, Table):
        length = x.row_shape.numel()
        y = torch.empty((*index.shape, *x.row_shape), dtype=x.dtype, device=x.device)
        return gather_rows(x.address, index.reshape(-1), x.dtype, y.view(-1, length)).view(y.shape)
    axis %= x.ndim
    rows = _rows_of(x, axis) if axis == batch <= 1 and index.numel() else None
    if rows is None:
        return RULES["gather"](x, index, axis=axis, batch=batch)
    front, _, rest = rows.shape
    y = torch.empty((*index.shape, *x.shape[axis + 1 :]), dtype=x.dtype, device=x.device)
    take_rows(rows, index.reshape(front, -1).contiguous(), y.view(front, -1, rest))
    return y


def _rows_of(x: torch.Tensor, axis: int) -> torch.Tensor | None:
    """[B, P, L] with contiguous rows along `axis`; None where they are not."""
    flat = x.flatten(axis + 1) if axis + 1 < x.ndim else x.unsqueeze(-1)
    flat = flat if axis == 1 else flat.unsqueeze(0)
    fits = x.is_floating_point() and (flat.stride(2) == 1 or flat.shape[2] == 1)
    return flat if fits else None


def bank_values(
    pages: torch.Tensor | Table,
    frames: torch.Tensor,
    tokens: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The rule of `bank_values`."""
    return _bank(pages, frames, tokens, None, dtype)


def bank_keys(
    pages: torch.Tensor | Table,
    frames: torch.Tensor,
    tokens: torch.Tensor,
    times: torch.Tensor,
    slots: torch.Tensor,
    grid: torch.Tensor,
    positions: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The rule of `bank_keys`."""
    return _bank(pages, frames, tokens, (times, slots, grid, positions), dtype)


def _bank(
    pages: torch.Tensor | Table,
    frames: torch.Tensor,
    tokens: torch.Tensor,
    positions: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    read = pages if isinstance(pages, Table) else Table(pages.contiguous())
    (N, F), (T, C) = frames.shape, read.row_shape
    shape = (N, F * T + tokens.shape[1], C)
    y = torch.empty(shape, dtype=dtype or tokens.dtype, device=tokens.device)
    if positions is not None:
        times, slots, grid, of_tokens = (x.contiguous() for x in positions)
        positions = (times, slots, grid, of_tokens)
    return bank_rows(
        read.address, read.dtype, frames.contiguous(), tokens.contiguous(), positions, out=y
    )


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
    """The rule of `image_to_tokens`."""
    tensors = (image, queries, keys, scores, values, scale, shift)
    if keys.shape[1] > _MOST_TOKENS or image.shape[2] > WIDEST_HEAD or not image.numel():
        return FUSED["image_to_tokens"](*tensors, heads=heads, eps=eps)
    blocks = table.cell_blocks(len(image))
    k, s, v = (x if x.stride(2) == 1 else x.contiguous() for x in (keys, scores, values))
    return to_tokens(
        _cells(image), _cells(queries), k, s, v, scale, shift, heads=heads, eps=eps, blocks=blocks
    )


def _cells(x: torch.Tensor) -> torch.Tensor:
    """An image [N, I, C] with contiguous cells."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


def grouped_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, activation: str = "none"
) -> torch.Tensor:
    """The rule of `grouped_linear`."""
    rows = x if x.stride(2) == 1 else x.contiguous()
    return grouped(rows, weight, bias, activation=activation)


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
    """The rule of `upscale_masks`."""
    N, cells, _ = image.shape
    A, B = len(dc1) // 4, len(dc2) // 4
    rest = (feat_s1, scale, shift, dc2, dc2_bias, feat_s0)
    if any(width & (width - 1) or width < table.NARROWEST for width in (A, B)):
        return FUSED["upscale_masks"](image, dc1, dc1_bias, *rest, hyper_in, eps=eps)
    if N >= _MANY_IMAGES:
        rest = (_channels_first(feat_s1), scale, shift, dc2, dc2_bias, _channels_first(feat_s0))
    rows = fused_linear(image, dc1, dc1_bias).view(N, 4 * cells, A)
    side, blocks = math.isqrt(cells), table.upscaling_blocks(N)
    return upscale(rows, *rest, hyper_in.contiguous(), eps=eps, side=side, blocks=blocks)


def _channels_first(x: torch.Tensor) -> torch.Tensor:
    """A list of cells [1, H*H, A], stored channels-first, which `upscale` reads faster."""
    return x.mT.contiguous().mT if x.ndim == 3 and len(x) == 1 else x


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
    """The rule of `conv_norm`."""
    C = len(bias)
    if C > WIDEST_HEAD:
        return FUSED["conv_norm"](x, weight, bias, scale, shift, dtype=dtype, **attributes)
    at = ConvNormAttributes(**attributes)
    last = x.permute(0, 2, 3, 1).contiguous()
    high, wide = ((side + 2 * at.padding - at.kernel) // at.stride + 1 for side in x.shape[2:])
    y = torch.empty((len(x), high, wide, C), dtype=dtype or x.dtype, device=x.device)
    tensors = (last, weight, bias, scale, shift)
    if at.depthwise:
        depthwise_norm(*tensors, attributes=at, out=y, blocks=table.DEPTHWISE)
    else:
        blocks = table.conv_blocks(len(x) * high * wide, C)
        dense(*tensors, attributes=at, out=y, blocks=blocks)
    return y.permute(0, 3, 1, 2)


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
    """The rule of `enlarge_mask`."""
    kind = dtype or mask.dtype
    y = torch.empty((len(mask), 1, *size), dtype=kind, device=mask.device)
    plain = [x.contiguous() for x in (mask, gain, offset)]
    return enlarge(*plain, scale=scale, shift=shift, out=y)


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
    """The rule of `patch_embedding`."""
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
        blocks=table.PATCHES,
    )
