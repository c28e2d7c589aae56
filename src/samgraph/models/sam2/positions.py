"""Sinusoidal position encodings, without learned parameters.

`sine_grid` is for the neck and the memory encoder; the prompt encoder has random Fourier features
(see prompts), and memory attention has rotary encodings (ops.axial_rope).
"""

import numpy as np

from samgraph import ops
from samgraph.graph import Array, Tensor

_TEMPERATURE = 10000.0


def sine_grid(channels: int, height: int, width: int) -> Array:
    """The encoding of every position of a grid: [channels, height, width].

    The first half of the channels encodes the row, the second the column; sine and cosine
    alternate. Positions run from 1 to n and are scaled to 2 pi.
    """
    rows, columns = _sines(channels // 2, height), _sines(channels // 2, width)
    shape = (height, width, channels // 2)
    both = [np.broadcast_to(rows[:, None], shape), np.broadcast_to(columns[None], shape)]
    return np.concatenate(both, -1).transpose(2, 0, 1).astype(np.float32)


def token_positions(channels: int, side: int) -> Array:
    """The sine encoding of a grid, row by row: [side*side, channels]."""
    return sine_grid(channels, side, side).reshape(channels, side * side).T


def _sines(channels: int, length: int) -> Array:
    """[length, channels]: sine and cosine of each position at falling frequencies, interleaved."""
    positions = np.arange(1, length + 1, dtype=np.float32)
    positions = positions / (positions[-1] + np.float32(1e-6)) * np.float32(2 * np.pi)
    angles = positions[:, None] / _periods(channels)
    result = np.empty((length, channels), np.float32)
    result[:, 0::2], result[:, 1::2] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
    return result


def sine_time(times: Tensor, channels: int) -> Tensor:
    """The encoding of distances in time: [..., Q] -> [..., Q, channels].

    Unlike on the grid, all sines come first, then all cosines.
    """
    angles = times[..., None] / _periods(channels // 2)
    return ops.concat([ops.sin(angles), ops.cos(angles)], axis=-1)


def _periods(channels: int) -> Array:
    """The period of each channel; the two channels of a pair share theirs."""
    steps = 2 * (np.arange(channels) // 2) / channels
    return (_TEMPERATURE**steps).astype(np.float32)
