"""Activations and norms inside kernels."""

import triton
import triton.language as tl


@triton.jit
def gelu(x):
    """The exact GELU; its error function is within 3e-7 (Abramowitz and Stegun, 7.1.28)."""
    z = tl.abs(x) * 0.7071067811865476
    p = 1.0 + z * (
        0.0705230784
        + z
        * (
            0.0422820123
            + z * (0.0092705272 + z * (0.0001520143 + z * (0.0002765672 + z * 0.0000430638)))
        )
    )
    p *= p
    p *= p
    p *= p
    p *= p
    upper = 1.0 - 0.5 / p  # the normal distribution at |x|
    return x * tl.where(x < 0.0, 1.0 - upper, upper)


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """none, relu or gelu."""
    if ACTIVATION == "gelu":
        x = gelu(x)
    elif ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    return x


@triton.jit
def normalise(x, here, C: tl.constexpr, eps):
    """Rows of C elements, those that are `here`, with mean 0 and variance 1; zeros elsewhere."""
    x = tl.where(here, x - (tl.sum(x, 1) / C)[:, None], 0.0)
    return x * tl.rsqrt(tl.sum(x * x, 1) / C + eps)[:, None]
