"""grouped_linear: a separate linear layer for each of several tokens.

    y[:, g] = activation(x[:, g] @ weight[g].T + bias[g])

x [N, G, K], weight [G, M, K], bias [G, M] -> [N, G, M]; tokens of x may be strided.
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.launch import Kernel

_ROWS = 16


@triton.jit
def _grouped_linear(x_ptr, w_ptr, b_ptr, y_ptr, N, M, groups, x_row, x_group,
                    ACTIVATION: tl.constexpr, K: tl.constexpr, BM: tl.constexpr,
                    BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    group = tl.program_id(1)
    rows, columns = tl.program_id(2) * BM + tl.arange(0, BM), tl.arange(0, BN)
    columns += tl.program_id(0) * BN
    ks = tl.arange(0, BK)
    x_at = x_ptr + rows[:, None] * x_row + group * x_group + ks[None, :]
    w_at = w_ptr + (group * M + tl.minimum(columns, M - 1))[None, :] * K + ks[:, None]
    y = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(x_at + k, mask=(rows < N)[:, None] & (k + ks < K)[None, :], other=0.0)
        w = tl.load(w_at + k, mask=(k + ks < K)[:, None], other=0.0)
        y = tl.dot(x.to(w.dtype), w, y, input_precision=PRECISION)
    y += tl.load(b_ptr + group * M + columns, mask=columns < M, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "relu":
        y = tl.maximum(y, 0.0)
    y_at = y_ptr + (rows[:, None] * groups + group) * M + columns[None, :]
    inside = (rows < N)[:, None] & (columns < M)[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=inside)


_KERNEL = Kernel(_grouped_linear)


def grouped_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    activation: str = "none",
    columns: int = 32,
    depth: int = 64,
    precision: str = "tf32",
) -> torch.Tensor:
    """[N, G, M], of the dtype of the weight. The channels of `x` are contiguous."""
    N, G, K = x.shape
    M = weight.shape[1]
    y = torch.empty((N, G, M), dtype=weight.dtype, device=x.device)
    _KERNEL(
        (triton.cdiv(M, columns), G, triton.cdiv(N, _ROWS)),
        x, weight, bias, y, N, M, G, x.stride(0), x.stride(1), ACTIVATION=activation, K=K,
        BM=_ROWS, BN=columns, BK=depth, PRECISION=precision, warps=4, stages=3,
    )  # fmt: skip
    return y
