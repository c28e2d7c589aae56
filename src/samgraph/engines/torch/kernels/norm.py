"""layer_norm of rows, in float32 whatever their dtype, followed by an activation.

    y = activation((x - mean) / sqrt(variance + eps) * scale + shift)

x [M, C], rows may be strided -> [M, C]. Scale and shift may be missing; an offset [C] may
be added to the rows first.
"""

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import activate, normalise
from samgraph.engines.torch.kernels.launch import Kernel


@triton.jit
def _layer_norm(x_ptr, s_ptr, b_ptr, o_ptr, y_ptr, M, x_row, y_row, eps, SCALED: tl.constexpr,
                OFFSET: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BM: tl.constexpr,
                ACTIVATION: tl.constexpr):  # fmt: skip
    rows, cs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC)
    inside = (rows < M)[:, None] & (cs < C)[None, :]
    x_at = x_ptr + rows.to(tl.int64)[:, None] * x_row + cs[None, :]
    x = tl.load(x_at, mask=inside, other=0.0).to(tl.float32)
    if OFFSET:
        x += tl.load(o_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)[None, :]
    x = normalise(x, (cs < C)[None, :], C, eps)
    if SCALED:
        scale = tl.load(s_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)
        shift = tl.load(b_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)
        x = x * scale[None, :] + shift[None, :]
    y = activate(x, ACTIVATION)
    y_at = y_ptr + rows.to(tl.int64)[:, None] * y_row + cs[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=inside)


_KERNEL = Kernel(_layer_norm)
_ELEMENTS = 4096  # of a program: 32 for each thread


def layer_norm(
    x: torch.Tensor,
    scale: torch.Tensor | None,
    shift: torch.Tensor | None,
    *,
    eps: float,
    out: torch.Tensor,
    activation: str = "none",
    offset: torch.Tensor | None = None,
) -> torch.Tensor:
    """Fill `out` [M, C]; without scale and shift, rows have mean 0 and variance 1."""
    M, C = x.shape
    wide = triton.next_power_of_2(C)
    rows = max(1, _ELEMENTS // wide)
    _KERNEL(
        (triton.cdiv(M, rows),),
        x, x if scale is None else scale, x if shift is None else shift,
        x if offset is None else offset, out, M, x.stride(0), out.stride(0), eps,
        SCALED=scale is not None, OFFSET=offset is not None, C=C, BC=wide, BM=rows,
        ACTIVATION=activation,
    )  # fmt: skip
    return out
