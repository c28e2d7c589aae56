"""The filter of a box: against the eight-dimensional one it is made of, and on motion."""

import numpy as np
import numpy.typing as npt
import pytest

from samgraph.predict.video.policies import kalman

Floats = npt.NDArray[np.float64]


def test_a_box_that_moves_steadily_is_predicted() -> None:
    state = kalman.begin((10, 20, 30, 40))
    for step in range(1, 40):
        box = (10 + 3 * step, 20 - step, 30 + 3 * step, 40 - step)
        state = kalman.update(kalman.predict(state), box)

    found = kalman.box_of(kalman.predict(state))

    np.testing.assert_allclose(found, (130, -20, 150, 0), atol=0.3)


def test_it_is_the_filter_in_matrices() -> None:
    """Eight dimensions at once, as textbooks have it."""
    boxes = np.array([(10, 10, 30, 26), (12, 11, 32, 27), (15, 11, 37, 28), (16, 14, 36, 30)])
    state = kalman.begin(boxes[0])
    mean, spread = _begin(state)
    for box in boxes[1:]:
        predicted = kalman.predict(state)
        mean, spread = _predicted(mean, spread)
        np.testing.assert_allclose(predicted[:, 0], mean[:4], rtol=1e-5)
        mean, spread = _updated(mean, spread, np.array(box, float))
        state = kalman.update(predicted, box)

        np.testing.assert_allclose(state[:, 0], mean[:4], rtol=1e-5)
        np.testing.assert_allclose(state[:, 1], mean[4:], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(state[:, 2], np.diag(spread)[:4], rtol=1e-4)
        np.testing.assert_allclose(state[:, 4], np.diag(spread)[4:], rtol=1e-4)


def test_noise_grows_with_the_box() -> None:
    small, large = kalman.begin((0, 0, 10, 10)), kalman.begin((0, 0, 100, 100))

    assert large[0, 2] == pytest.approx(100 * small[0, 2])


def _begin(state: npt.NDArray[np.float32]) -> tuple[Floats, Floats]:
    mean = np.concatenate([state[:, 0], state[:, 1]]).astype(float)
    return mean, np.diag(np.concatenate([state[:, 2], state[:, 4]]).astype(float))


def _sizes(mean: Floats) -> Floats:
    return np.array([mean[2], mean[3], mean[2], mean[3]])


def _predicted(mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
    move = np.eye(8) + np.eye(8, k=4)
    sizes = _sizes(mean)
    noise = np.diag(np.concatenate([(sizes / 20) ** 2, (sizes / 160) ** 2]))
    return move @ mean, move @ spread @ move.T + noise


def _updated(mean: Floats, spread: Floats, box: Floats) -> tuple[Floats, Floats]:
    left, top, right, bottom = box
    seen = np.array([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top])
    look = np.eye(4, 8)
    noise = np.diag((_sizes(seen) / 20) ** 2)
    gain = spread @ look.T @ np.linalg.inv(look @ spread @ look.T + noise)
    return mean + gain @ (seen - look @ mean), spread - gain @ look @ spread
