"""image_to_tokens: image-to-token cross-attention, residual and layer norm, for few tokens.

    y = layer_norm(image + sum over heads of softmax(queries @ keys.T + scores) @ values)

A program takes some cells of one image, and several heads in a step: the tokens of these, side by
side, are one matrix, of which each head's columns are normalised separately. image and queries
[N, I, C], keys and values [N, T, h*C], scores [N, T, h] -> [N, I, C]. Rows of keys, values and
scores may be strided.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from samgraph.engines.torch.kernels.activations import normalise
from samgraph.engines.torch.kernels.launch import Kernel

_FEWEST, _COLUMNS = 16, 64  # tokens of all heads of a step


@triton.jit
def _image_to_tokens(x_ptr, q_ptr, k_ptr, s_ptr, v_ptr, scale_ptr, shift_ptr, y_ptr, cells, T,
                     x_batch, q_batch, k_batch, k_row, s_batch, s_row, v_batch, v_row, eps,
                     HEADS: tl.constexpr, GROUP: tl.constexpr, C: tl.constexpr, BC: tl.constexpr,
                     BT: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    image = tl.program_id(1).to(tl.int64)
    rows, cs = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BC)
    token, head = tl.arange(0, BT * GROUP) // GROUP, tl.arange(0, BT * GROUP) % GROUP
    inside = (rows < cells)[:, None] & (cs < C)[None, :]
    held = (token < T)[:, None] & (cs < C)[None, :]
    at = rows[:, None] * C + cs[None, :]
    q = tl.load(q_ptr + image * q_batch + at, mask=inside, other=0.0)
    y = tl.load(x_ptr + image * x_batch + at, mask=inside, other=0.0).to(tl.float32)
    for first in range(0, HEADS, GROUP):
        offset = (head + first) * C
        k_at = k_ptr + image * k_batch + (token * k_row + offset)[:, None] + cs[None, :]
        k = tl.load(k_at, mask=held, other=0.0)
        s_at = s_ptr + image * s_batch + token * s_row + head + first
        s = tl.load(s_at, mask=token < T, other=0.0).to(tl.float32)
        fit = (tl.dot(q, tl.trans(k), input_precision=PRECISION) + s[None, :]) * 1.4426950408889634
        fit = tl.reshape(tl.where((token < T)[None, :], fit, float("-inf")), (BM, BT, GROUP))
        powers = tl.exp2(fit - tl.max(fit, 1)[:, None, :])
        powers = powers / tl.sum(powers, 1)[:, None, :]
        powers = tl.reshape(powers, (BM, BT * GROUP))
        v_at = v_ptr + image * v_batch + (token * v_row + offset)[:, None] + cs[None, :]
        v = tl.load(v_at, mask=held, other=0.0)
        y = tl.dot(powers.to(v.dtype), v, y, input_precision=PRECISION)
    y = normalise(y, (cs < C)[None, :], C, eps)
    scale = tl.load(scale_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)
    shift = tl.load(shift_ptr + cs, mask=cs < C, other=0.0).to(tl.float32)
    y_at = y_ptr + image * cells * C + at
    y = y * scale[None, :] + shift[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=inside)


_KERNEL = Kernel(_image_to_tokens)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Cells of a program, warps, stages of loading."""

    rows: int
    warps: int
    stages: int


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
    blocks: Blocks,
    precision: str = "tf32",
) -> torch.Tensor:
    """[N, I, C]; the cells of image and queries are contiguous."""
    N, cells, C = image.shape
    T = keys.shape[1]
    tokens = triton.next_power_of_2(T)
    group = max(1, min(heads, _COLUMNS // tokens))
    while heads % group:
        group -= 1
    y = torch.empty(image.shape, dtype=image.dtype, device=image.device)
    _KERNEL(
        (triton.cdiv(cells, blocks.rows), N),
        image, queries, keys, scores, values, scale, shift, y, cells, T, image.stride(0),
        queries.stride(0), keys.stride(0), keys.stride(1), scores.stride(0), scores.stride(1),
        values.stride(0), values.stride(1), eps, HEADS=heads, GROUP=group, C=C,
        BC=triton.next_power_of_2(C), BT=max(tokens, _FEWEST // group), BM=blocks.rows,
        PRECISION=precision, warps=blocks.warps, stages=blocks.stages,
    )  # fmt: skip
    return y
