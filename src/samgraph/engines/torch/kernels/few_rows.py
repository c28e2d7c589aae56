"""few_rows: a linear layer of few rows, bound by reading the weight.

    y = residual + activation(x @ weight.T + bias)

Programs take some columns and a range of the depth each, so that many read the weight at once; a
second kernel adds up. x [M, K], weight [N, K], bias [N], residual [M, N] -> [M, N].
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import activate
from samgraph.engines.torch.kernels.launch import Kernel


@triton.jit
def _products(x_ptr, w_ptr, p_ptr, M, N, K, x_stride, share, PRECISION: tl.constexpr,
              BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    rows, columns = tl.program_id(2) * BM + tl.arange(0, BM), tl.arange(0, BN)
    columns += tl.program_id(0) * BN
    first = tl.program_id(1) * share
    ks = first + tl.arange(0, BK)
    x_at = x_ptr + rows[:, None] * x_stride + ks[None, :]
    w_at = w_ptr + tl.minimum(columns, N - 1)[None, :] * K + ks[:, None]
    y = tl.zeros((BM, BN), tl.float32)
    for k in range(0, share, BK):
        x = tl.load(x_at + k, mask=(rows < M)[:, None] & (ks + k < K)[None, :], other=0.0)
        w = tl.load(w_at + k, mask=(ks + k < K)[:, None], other=0.0)
        y = tl.dot(x.to(w.dtype), w, y, input_precision=PRECISION)
    p_at = p_ptr + (tl.program_id(1) * M + rows[:, None]) * N + columns[None, :]
    tl.store(p_at, y, mask=(rows < M)[:, None] & (columns < N)[None, :])


@triton.jit
def _sum(p_ptr, b_ptr, r_ptr, y_ptr, M, N, r_stride, parts, ACTIVATION: tl.constexpr,
         RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row, columns = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < N
    y = tl.load(b_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    for part in range(parts):
        y += tl.load(p_ptr + (part * M + row) * N + columns, mask=inside, other=0.0)
    y = activate(y, ACTIVATION)
    if RESIDUAL:
        y += tl.load(r_ptr + row * r_stride + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * N + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


_PRODUCTS, _SUM = Kernel(_products), Kernel(_sum)
_BLOCK, _ROWS = 256, 16


@dataclass(frozen=True, slots=True)
class Blocks:
    """Parts of the depth, columns of a program, depth of a step."""

    parts: int
    columns: int
    depth: int


def few_rows(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    activation: str = "none",
    out: torch.Tensor,
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """Fill `out` [M, N], which is contiguous."""
    M, K = x.shape
    N = len(weight)
    share = triton.cdiv(triton.cdiv(K, blocks.parts), blocks.depth) * blocks.depth
    count = triton.cdiv(K, share)
    products = torch.empty((count, M, N), device=x.device)
    _PRODUCTS(
        (triton.cdiv(N, blocks.columns), count, triton.cdiv(M, _ROWS)),
        x, weight, products, M, N, K, x.stride(0), share, PRECISION=precision, BM=_ROWS,
        BN=blocks.columns, BK=blocks.depth, warps=4, stages=2,
    )  # fmt: skip
    added = out if residual is None else residual
    _SUM(
        (triton.cdiv(N, _BLOCK), M),
        products, bias, added, out, M, N, added.stride(0), count, ACTIVATION=activation,
        RESIDUAL=residual is not None, BLOCK=_BLOCK,
    )  # fmt: skip
    return out
