"""Products: where nearly all the work is, and what bf16 mode computes in bf16.

Half precision runs as it is on a GPU. On a CPU it is widened to float32 and rounded once at the
end: some processors announce bf16 instructions that kill the process (see `openvino/bf16.py`).
"""

import math
from collections.abc import Callable

import torch
from torch.nn import functional

from samgraph.engines.torch.tensors import HALVES, widen

Rule = Callable[..., torch.Tensor]
Pair = tuple[int, int]

# The largest y dimension of a CUDA grid; a large batch of images has more windows.
MOST_AT_ONCE = 65_535

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
}


def _product(compute: Rule) -> Rule:
    """The rule that computes half precision in float32 on a CPU."""

    def rule(*tensors: torch.Tensor, **attributes: object) -> torch.Tensor:
        first = tensors[0]
        if first.dtype in HALVES and first.device.type == "cpu":
            return compute(*map(widen, tensors), **attributes).to(first.dtype)
        return compute(*tensors, **attributes)

    return rule


def _linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
) -> torch.Tensor:
    return ACTIVATIONS[activation](functional.linear(x, weight, bias))


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    heads: int,
    scale: float,
) -> torch.Tensor:
    """Torch's own, which materialises no scores where it can: [B, heads, T, D]."""
    shape = (*q.shape[:-1], v.shape[-1])
    bias = None if mask is None else _scores(mask, q, k, heads)
    q, k, v = (_split(x, heads) for x in (q, k, v))
    if 0 in q.shape or 0 in v.shape:  # torch's kernels may crash on empty tensors
        return (torch.softmax(q @ k.mT * scale, -1) @ v).transpose(1, 2).reshape(shape)
    width = v.shape[-1]
    if q.is_cuda and q.shape[-1] != width:  # torch's fast kernels need equal widths
        q, k, v = _same_width(q, k, v)
    parts = [x.split(MOST_AT_ONCE) for x in (q, k, v)]
    biases = [bias] * len(parts[0])
    if bias is not None and len(bias) > 1:
        biases = bias.split(MOST_AT_ONCE)
    each = [
        functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
        for q, k, v, bias in zip(*parts, biases, strict=True)
    ]
    y = each[0] if len(each) == 1 else torch.cat(each)
    return y[..., :width].transpose(1, 2).reshape(shape)


def _split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[..., T, heads*D] -> [B, heads, T, D]."""
    count, width = math.prod(x.shape[:-2]), x.shape[-1] // heads
    return x.reshape(count, x.shape[-2], heads, width).transpose(1, 2)


def _scores(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor, heads: int) -> torch.Tensor:
    """What is added to the scores: [B, heads, T, S], or B = 1 where all batches share it."""
    scores = (heads, q.shape[-2], k.shape[-2])
    front = q.shape[:-2]
    if all(length == 1 for length in mask.shape[:-3]):
        return mask.reshape(mask.shape[-3:]).expand(1, *scores)
    return mask.expand(*front, *scores).reshape(math.prod(front), *scores)


def _same_width(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The narrower padded with zeros, which add nothing to a score and are sliced off a result."""
    width = max(x.shape[-1] for x in tensors)
    return [functional.pad(x, (0, width - x.shape[-1])) for x in tensors]


def _conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    stride: Pair,
    padding: Pair,
    groups: int,
) -> torch.Tensor:
    return functional.conv2d(x, weight, bias, stride, padding, groups=groups)


def _conv_transpose2d(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, stride: Pair
) -> torch.Tensor:
    return functional.conv_transpose2d(x, weight, bias, stride)


PRODUCTS: dict[str, Rule] = {
    "attention": _product(_attention),
    "conv2d": _product(_conv2d),
    "conv_transpose2d": _product(_conv_transpose2d),
    "linear": _product(_linear),
    "matmul": _product(torch.matmul),
}
