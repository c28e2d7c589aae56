"""Weights in 8 bits: a quarter of the size in float32, made float32 again when they are read.

Large matrices and kernels are stored as whole numbers of -127 to 127 and a scale for each index of
their first axis (symmetric, no zero point); everything else in float16. Biases, norms and position
tables are small and lose masks when they are rounded so far.

    blocks.0.attn.qkv.weight              I8 [336, 112]
    blocks.0.attn.qkv.weight.int8_scale   F32 [336]
"""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from samgraph.checkpoint.source_file import Array, short_name
from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

SCALE = ".int8_scale"
METADATA = {"samgraph.weights": "int8"}
# Smaller tensors are stored in float16: they are no part of a file's size.
SMALLEST = 4096
HIGHEST = 127


def quantise(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Large tensors as int8 with a scale per row, the others as float16 (float32 if too large)."""
    found: dict[str, Array] = {}
    for name, array in tensors.items():
        if not is_float(array):
            found[name] = array
            continue
        values = np.asarray(array, np.float32)
        if not np.isfinite(values).all():
            raise CheckpointError(f"`{name}` has values that 8 bits cannot hold", got="not finite")
        if values.ndim < 2 or values.size < SMALLEST or len(values) == 1:
            with np.errstate(over="ignore"):
                half = values.astype(np.float16)
            found[name] = half if np.isfinite(half).all() else values
            continue
        highest = np.abs(values).reshape(len(values), -1).max(1)
        scale = np.where(highest > 0, highest / np.float32(HIGHEST), 1).astype(np.float32)
        found[name] = np.rint(values / _along(scale, values)).astype(np.int8)
        found[name + SCALE] = scale
    return found


def is_float(array: Array) -> bool:
    """Whether an array is of floating-point numbers, bfloat16 included."""
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def is_quantised(metadata: Mapping[str, str]) -> bool:
    """Whether a file's metadata says that its weights are in 8 bits."""
    return METADATA.items() <= metadata.items()


def restore(tensors: Mapping[str, Array], source: str) -> dict[str, Array]:
    """The tensors in floating point, without their scales.

    Raises:
        CheckpointError: A scale is missing, left over, or of another shape.
    """
    found: dict[str, Array] = {}
    for name, array in tensors.items():
        if name.endswith(SCALE):
            if tensors.get(name.removesuffix(SCALE), array).dtype != np.int8:
                raise _invalid(source, f"`{shown(name)}` scales nothing")
            continue
        if array.dtype != np.int8:
            found[name] = array
            continue
        scale = tensors.get(name + SCALE)
        if scale is None or scale.dtype != np.float32 or scale.shape != array.shape[:1]:
            raise _invalid(source, f"`{shown(name)}` has no scale per row")
        found[name] = array.astype(np.float32) * _along(scale, array)
    return found


def _along(scale: Array, array: Array) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A scale per row, in a shape that multiplies the array."""
    return scale.reshape(-1, *[1] * (array.ndim - 1))


def _invalid(source: str, reason: str) -> CheckpointError:
    return CheckpointError(f"`{short_name(source)}` has damaged weights in 8 bits", got=reason)
