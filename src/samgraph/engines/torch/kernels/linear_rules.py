"""Which kernel runs a linear layer: by the number of rows, their width, and what is fused.

    rotated, narrow                  `row_linear.rotated_linear`
    few rows, a deep product         `few_rows`
    many narrow rows with a norm     `row_linear`
    else                             the norm by itself, then cuBLAS, or `linear` for what it lacks

cuBLAS has bias, ReLU and GELU (its tanh form, within half a unit of bf16 of the exact form) in its
products, and accumulates into the output, but not with a bias at the same time.
"""

from functools import lru_cache
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from samgraph.engines.torch.fused import FUSED
from samgraph.engines.torch.kernels import blocks as table
from samgraph.engines.torch.kernels.few_rows import few_rows
from samgraph.engines.torch.kernels.linear import linear
from samgraph.engines.torch.kernels.mlp import mlp
from samgraph.engines.torch.kernels.norm import layer_norm
from samgraph.engines.torch.kernels.rotate import rotate
from samgraph.engines.torch.kernels.rotation import Rotation
from samgraph.engines.torch.kernels.row_linear import WIDEST, rotated_linear, row_linear
from samgraph.engines.torch.ops.fused_linear import LinearAttributes
from samgraph.graph.dims import known

_TALL = 512  # rows of a product in float32 that is better left to cuBLAS

_ROUNDED = WeakTensorKeyDictionary()  # biases in the dtype that cuBLAS needs


def fused_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    **attributes: Any,
) -> torch.Tensor:
    """The rule of `fused_linear`."""
    at = LinearAttributes(**attributes)
    front, N, width = x.shape[:-1], len(weight), at.width
    if at.rotated and (N % width or width & (width - 1) or width < table.NARROWEST):
        return FUSED["fused_linear"](x, weight, bias, residual, dtype=dtype, **attributes)
    if at.pool:
        front = torch.Size([front[0], front[1] // 2, front[2] // 2])
    kind = dtype or (weight if residual is None else residual).dtype
    y = torch.empty((*front, N), dtype=kind, device=x.device)
    rows, flat = as_rows(x), y.view(-1, N)
    if not y.numel():
        return y
    if at.rotated:
        tokens = x.shape[-2]
        rotary = tokens - known(at.unrotated)
        rotation = Rotation(at.grid, at.theta, width, at.rotated, tokens, rotary)
        _rotated(rows, weight, bias, at.eps, rotation, flat)
        return y
    added = None if residual is None else _repeated_rows(residual)
    offset, map_width = bias if at.biased else None, x.shape[2] if at.pool else 0
    _product(rows, weight, offset, added, at.eps, at.activation, map_width, flat)
    return y


def _rotated(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    rotation: Rotation,
    out: torch.Tensor,
) -> None:
    """A rotated layer in one kernel, or its product first."""
    (M, K), N = x.shape, len(weight)
    blocks = table.rotated_blocks(M, N, K, weight.dtype)
    if blocks is not None and K <= WIDEST:
        rotated_linear(x, weight, bias, rotation=rotation, eps=eps, out=out, blocks=blocks)
    else:
        _product(x, weight, bias, None, eps, "none", 0, out)
        rotate(out, rotation)


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
    """The rule of `fused_mlp`."""
    rows = as_rows(x)
    M, C = rows.shape
    blocks = table.mlp_blocks(M, C, len(inner), inner.dtype)
    if blocks is None:
        hidden = fused_linear(x, inner, inner_bias, eps=eps, activation=activation)
        return fused_linear(hidden, outer, outer_bias, x)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mlp(
        rows, inner, inner_bias, outer, outer_bias, eps=eps, activation=activation,
        out=y.view(-1, C), blocks=blocks,
    )  # fmt: skip
    return y


def _product(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    eps: float,
    activation: str,
    pool: int,
    out: torch.Tensor,
) -> None:
    """Rows [M, K] through the kernel that suits them."""
    (M, K), N = x.shape, len(weight)
    given = _zeros(N, x.device) if bias is None else bias
    if not eps and not pool and table.are_few(M, K) and (residual is None or len(residual) == M):
        few = table.few_blocks(K)
        few_rows(x, weight, given, residual, activation=activation, out=out, blocks=few)
        return
    rows = table.row_blocks(M, N, K, weight.dtype, norms=eps > 0)
    if rows is not None:
        row_linear(
            x, weight, given, residual, eps=eps, activation=activation, pool=pool, out=out,
            blocks=rows,
        )  # fmt: skip
        return
    if eps:
        x = layer_norm(x, None, None, eps=eps, out=torch.empty_like(x, dtype=weight.dtype))
    if pool or not _by_cublas(x, weight, bias, residual, activation, out):
        blocks = table.linear_blocks(M, N, K, weight.dtype, pools=pool > 0)
        linear(x, weight, given, residual, activation=activation, pool=pool, out=out, blocks=blocks)


def _by_cublas(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
    out: torch.Tensor,
) -> bool:
    """Run it with cuBLAS where cuBLAS can do all of it; whether it did."""
    if not x.is_cuda or x.dtype != weight.dtype:
        return False
    if weight.dtype == torch.float32:
        if residual is not None or activation != "none" or bias is None or len(x) < _TALL:
            return False
        torch.addmm(bias, x, weight.mT, out=out)
        return True
    if x.dtype != out.dtype:
        return False
    if bias is None:
        same = residual is not None and residual.dtype == out.dtype and len(residual) == len(x)
        if same and activation == "none":
            torch.addmm(residual, x, weight.mT, out=out)
        return same and activation == "none"
    if residual is not None:
        return False
    half = _rounded(bias, weight.dtype)
    if activation == "none":
        torch.addmm(half, x, weight.mT, out=out)
    else:
        gelu = activation == "gelu"
        torch.ops.aten._addmm_activation.out(half, x, weight.mT, use_gelu=gelu, out=out)
    return True


@lru_cache(maxsize=64)
def _zeros(count: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(count, device=device)


def _rounded(bias: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A bias rounded to `dtype`, cached for as long as the bias lives."""
    if bias.dtype == dtype:
        return bias
    known: torch.Tensor | None = _ROUNDED.get(bias)
    if known is None or known.dtype != dtype:
        known = _ROUNDED[bias] = bias.to(dtype)
    return known


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """[..., C] as [M, C]; copied only where channels are not contiguous."""
    flat = x.reshape(-1, x.shape[-1])
    return flat if flat.stride(1) == 1 else flat.contiguous()


def _repeated_rows(x: torch.Tensor) -> torch.Tensor:
    """As `as_rows`; of a tensor expanded along the first axis, the rows of one batch."""
    return as_rows(x[:1] if x.ndim > 2 and x.stride(0) == 0 else x)
