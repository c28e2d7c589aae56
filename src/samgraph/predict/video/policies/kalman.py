"""A Kalman filter of a box that moves at constant velocity.

Centre, width and height are filtered each on its own: their noises are independent, so that the
eight-dimensional filter falls apart into four of two dimensions, value and velocity. Noise is in
proportion to the size of the box: a twentieth of it in the value, a hundred and sixtieth in the
velocity, per frame.

State: [4, 5], for centre x, centre y, width, height: value, velocity, and their covariance as
variance of the value, covariance, variance of the velocity.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

VALUE_NOISE: Final = 1 / 20
VELOCITY_NOISE: Final = 1 / 160


def begin(box_xyxy: object) -> Floats:
    """The state after one box: at rest, and unsure of it."""
    value = _measured(box_xyxy)
    size = _size(value)
    state = np.zeros((4, 5), np.float32)
    state[:, 0] = value
    state[:, 2] = (2 * VALUE_NOISE * size) ** 2
    state[:, 4] = (10 * VELOCITY_NOISE * size) ** 2
    return state


def predict(state: Floats) -> Floats:
    """The state a frame later."""
    value, velocity, spread, mixed, drift = state.T
    size = _size(value)
    return np.stack(
        [
            value + velocity,
            velocity,
            spread + 2 * mixed + drift + (VALUE_NOISE * size) ** 2,
            mixed + drift,
            drift + (VELOCITY_NOISE * size) ** 2,
        ],
        axis=1,
    ).astype(np.float32)


def update(state: Floats, box_xyxy: object) -> Floats:
    """The predicted state, corrected by the box that was found."""
    value, velocity, spread, mixed, drift = state.T
    measured = _measured(box_xyxy)
    noise = np.maximum((VALUE_NOISE * _size(measured)) ** 2, np.float32(1e-6))
    total, error = spread + noise, measured - value
    return np.stack(
        [
            value + spread / total * error,
            velocity + mixed / total * error,
            spread * noise / total,
            mixed * noise / total,
            drift - mixed**2 / total,
        ],
        axis=1,
    ).astype(np.float32)


def box_of(state: Floats) -> Floats:
    """The box of a state: left, top, right, bottom."""
    x, y, width, height = state[:, 0]
    half = np.array([max(width, 0), max(height, 0)], np.float32) / 2
    centre = np.array([x, y], np.float32)
    return np.concatenate([centre - half, centre + half])


def _measured(box_xyxy: object) -> Floats:
    left, top, right, bottom = np.asarray(box_xyxy, np.float32)
    return np.array(
        [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], np.float32
    )


def _size(value: Floats) -> Floats:
    """The extent that the noise of each value is in proportion to: [4]."""
    return np.tile(np.maximum(np.abs(value[2:]), np.float32(1)), 2)
