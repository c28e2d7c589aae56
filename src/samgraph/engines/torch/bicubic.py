"""Frames resized on the device, to the bit as Pillow resizes their bytes.

Pillow resizes one axis, rounds to bytes, then resizes the other; weights are those of a bicubic
filter, widened where an image shrinks, in fixed point with 22 bits. All of it is done here in
int32. Which axis comes first depends on the sizes and on the version of Pillow: it is tried once
for each size.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

BITS = 22
_SUPPORT, _A = 2.0, -0.5
_MOST_TABLES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """What each output pixel along one axis reads: `first` [S], and weights [S, K]."""

    first: torch.Tensor
    weights: torch.Tensor


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Mean and standard deviation of each channel, in 0..1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@lru_cache(maxsize=_MOST_TABLES)
def rows_come_first(height: int, width: int, size: int) -> bool:
    """Whether Pillow resizes along the columns of such an image before it does along its rows."""
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    expected = np.asarray(Image.fromarray(noise).resize((size, size)))
    found = resized(torch.from_numpy(noise), size, rows_first=False).numpy()
    return not np.array_equal(found, expected)


def resized(frame: torch.Tensor, size: int, *, rows_first: bool) -> torch.Tensor:
    """Bytes [H, W, 3] -> bytes [S, S, 3]."""
    for axis in (0, 1) if rows_first else (1, 0):
        frame = _resized(frame, taps(frame.shape[axis], size, frame.device), axis)
    return frame


def frame_pixels(frame: torch.Tensor, size: int, norm: Normalisation) -> torch.Tensor:
    """Bytes [H, W, 3] -> float32 [3, S, S]."""
    height, width = frame.shape[:2]
    small = resized(frame, size, rows_first=rows_come_first(height, width, size))
    table = byte_values(norm, frame.device)
    return torch.stack([table[channel][small[:, :, channel].long()] for channel in range(3)])


def _resized(x: torch.Tensor, along: Taps, axis: int) -> torch.Tensor:
    """Bytes [H, W, 3] with one axis resized."""
    shape = [1, 1, 1]
    shape[axis] = -1
    total = torch.full((), 1 << (BITS - 1), dtype=torch.int32, device=x.device)
    for tap in range(along.weights.shape[1]):
        index = (along.first + tap).clamp(max=x.shape[axis] - 1)
        weight = along.weights[:, tap].reshape(shape)
        total = total + x.index_select(axis, index).int() * weight
    return (total >> BITS).clamp(0, 255).to(torch.uint8)


@lru_cache(maxsize=_MOST_TABLES)
def taps(length: int, size: int, device: torch.device) -> Taps:
    """The taps that resize `length` pixels to `size`, on a device."""
    first, weights = bicubic_taps(length, size)
    with torch.inference_mode(False):
        return Taps(torch.from_numpy(first).to(device), torch.from_numpy(weights).to(device))


def bicubic_taps(length: int, size: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The first pixel that each output reads [S], and its weights in fixed point [S, K]."""
    scale = length / size
    spread = max(scale, 1.0)
    support = _SUPPORT * spread
    centre = (np.arange(size) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support + 0.5).astype(np.int64), length)
    position = first[:, None] + np.arange(int((last - first).max()))[None]
    weights = _cubic(np.abs((position - centre[:, None] + 0.5) / spread))
    weights[position >= last[:, None]] = 0.0
    weights /= np.cumsum(weights, axis=1)[:, -1:]  # summed in order, as Pillow does
    fixed = np.trunc(weights * (1 << BITS) + np.where(weights < 0, -0.5, 0.5))
    return first.astype(np.int32), np.ascontiguousarray(fixed.astype(np.int32))


def _cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    near = ((_A + 2.0) * x - (_A + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * _A
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


@lru_cache(maxsize=_MOST_TABLES)
def byte_values(norm: Normalisation, device: torch.device) -> torch.Tensor:
    """The normalised value of every byte: float32 [3, 256]."""
    unit = (np.arange(256) / 255.0).astype(np.float32)
    pairs = zip(norm.mean, norm.std, strict=True)
    table = np.stack([(unit - np.float32(mean)) / np.float32(std) for mean, std in pairs])
    with torch.inference_mode(False):
        return torch.from_numpy(table).to(device)
