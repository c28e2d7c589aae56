"""Which kernel runs attention: cuDNN's, ours with the keys split, or what torch chooses."""

from functools import cache

import torch

from samgraph.engines.torch.fused import FUSED
from samgraph.engines.torch.kernels import blocks as table
from samgraph.engines.torch.kernels.attention import attention as split_attention
from samgraph.engines.torch.kernels.attention import combine
from samgraph.engines.torch.kernels.windows import window_attention as windows
from samgraph.engines.torch.products import PRODUCTS
from samgraph.engines.torch.tensors import HALVES

Pair = tuple[int, int]
WIDEST_HEAD = 256


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    heads: int,
    scale: float,
) -> torch.Tensor:
    """The rule of `attention`."""
    widths = (q.shape[-1] // heads, v.shape[-1] // heads)
    bias = None if mask is None else _key_bias(mask, len(q))
    unfit = (mask is not None and bias is None) or max(widths) > WIDEST_HEAD
    if unfit or 0 in q.shape or 0 in v.shape:
        given = (q, k, v) if mask is None else (q, k, v, mask)
        return PRODUCTS["attention"](*given, heads=heads, scale=scale)
    front = q.shape[:-2]
    q, k, v = (_batched(x) for x in (q, k, v))
    few = v.dtype == torch.float32 and heads == 1 and q.shape[1] <= table.FEW_QUERIES
    splits = 0
    if bias is None and v.dtype in HALVES and has_cudnn(v.device):
        splits = table.cudnn_splits(len(q) * heads, k.shape[1])
    if few and bias is None and v.is_cuda:
        scores = torch.bmm(q, k.mT)
        y = torch.softmax(scores if scale == 1.0 else scores * scale, -1) @ v
    elif splits:
        y = _cudnn(q, k, v, heads, scale, splits)
    else:
        sizes = (len(q) * heads, q.shape[1], k.shape[1], *widths)
        blocks = table.attention_blocks(*sizes, v.dtype)
        y = split_attention(q, k, v, bias, heads=heads, scale=scale, blocks=blocks)
    return y.view(*front, *y.shape[1:])


def _cudnn(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int, scale: float, splits: int
) -> torch.Tensor:
    """cuDNN's kernel, which is the faster where it fills the GPU: ranges of keys are a batch."""
    B, S = len(q), k.shape[1]
    if splits > 1:
        q = q.repeat(splits, 1, 1) if B == 1 else q.repeat_interleave(splits, 0)
        k, v = (x.unflatten(1, (splits, S // splits)).flatten(0, 1) for x in (k, v))
    q, k, v = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, splits > 1, 0.0, False, False, scale=scale
    )
    y = found[0].transpose(1, 2).flatten(2)
    if splits == 1:
        return y if y.is_contiguous() else y.contiguous()
    return combine(y, found[1], B, splits, heads)


@cache
def has_cudnn(device: torch.device) -> bool:
    """Whether cuDNN's attention runs here: on Hopper and newer it is worth calling."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    available: bool = torch.backends.cudnn.is_available()
    return available and bool(torch.backends.cuda.cudnn_sdp_enabled())


def _key_bias(mask: torch.Tensor, batch: int) -> torch.Tensor | None:
    """A mask that does not depend on head or query, as [B, S]; else None."""
    if mask.ndim < 4:
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    if mask.ndim != 4 or mask.shape[1:3] != (1, 1) or mask.stride(3) != 1:
        return None
    return mask[:, 0, 0].expand(batch, -1)


def _batched(x: torch.Tensor) -> torch.Tensor:
    """[..., T, C] as [B, T, C] with contiguous channels."""
    flat = x if x.ndim == 3 else x.reshape(-1, *x.shape[-2:])
    return flat if flat.stride(2) == 1 else flat.contiguous()


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
    """The rule of `window_attention`."""
    width = q.shape[-1] // heads
    blocks = table.window_blocks(window, k.shape[1] // q.shape[1], width, q.dtype)
    if width > WIDEST_HEAD:
        tensors = (q, k, v, k_bias, v_bias)
        return FUSED["window_attention"](*tensors, heads=heads, scale=scale, window=window)
    return windows(
        _map(q), _map(k), _map(v), k_bias, v_bias, heads=heads, scale=scale, window=window,
        blocks=blocks,
    )  # fmt: skip


def _map(x: torch.Tensor) -> torch.Tensor:
    """A map whose pixels are evenly strided, with contiguous channels."""
    row = x.stride(2)
    plain = x.stride(3) == 1 and x.stride(1) == row * x.shape[2]
    return (
        x if plain and (len(x) == 1 or x.stride(0) == x.stride(1) * x.shape[1]) else x.contiguous()
    )
