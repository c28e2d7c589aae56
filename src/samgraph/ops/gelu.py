"""gelu: ``x * (1 + erf(x / sqrt 2)) / 2``, the exact form, not the tanh one."""

import math
from functools import cache

import numpy as np

from samgraph.graph.builder import Tensor, emit
from samgraph.graph.registry import register
from samgraph.graph.types import Array
from samgraph.ops.rules import float_function

_STEP, _LIMIT = 1 / 512, 6.0  # beyond 6, erf is 1 in float64


def gelu(x: Tensor) -> Tensor:
    """The exact GELU."""
    return emit("gelu", x)


def reference(x: Array) -> Array:
    """Computed in float64 and rounded once."""
    wide = x.astype(np.float64)
    y: Array = 0.5 * wide * (1 + erf(wide / math.sqrt(2)))
    return y.astype(x.dtype)


def erf(x: Array) -> Array:
    """The error function: cubic Hermite between exact values; within 1e-12 in float64."""
    values, slopes = _table()
    position = np.minimum(np.abs(x), _LIMIT - _STEP) / _STEP
    left = position.astype(np.int64)
    t = np.minimum(np.abs(x), _LIMIT) / _STEP - left
    rise = values[left + 1] - values[left]
    a, b = slopes[left] * _STEP - rise, rise - slopes[left + 1] * _STEP
    y = values[left] + t * (rise + (1 - t) * (a * (1 - t) + b * t))
    result: Array = np.copysign(y, x)
    return result


@cache
def _table() -> tuple[Array, Array]:
    """Values and slopes of erf on a grid over [0, 6]."""
    grid = np.arange(0, _LIMIT + _STEP, _STEP)
    slopes = 2 / math.sqrt(math.pi) * np.exp(-(grid**2))
    return np.array([math.erf(point) for point in grid]), slopes


register("gelu", infer=float_function("gelu"), reference=reference, meaning=__doc__)
