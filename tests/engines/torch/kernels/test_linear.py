"""Linear layers: every kernel that may run one, with all that stands beside it."""

from typing import Any

import numpy as np
import pytest

from tests.engines.torch.kernels.running import difference, normal, torch
from tests.tolerances import KERNEL_FP16, KERNEL_FP32

pytestmark = pytest.mark.parity


def layer(M: int, N: int, K: int, *, residual: int = 0) -> list[Any]:
    """x, weight, bias, and a residual of so many rows."""
    given = [normal(M, K) + 1, normal(N, K) / K**0.5, normal(N)]
    return [*given, normal(residual, N)] if residual else given


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("residual", [0, 40])
def test_fused_linear(activation: str, eps: float, residual: int) -> None:
    arrays = layer(40, 24, 36, residual=residual)

    found = difference("fused_linear", *arrays, eps=eps, activation=activation)

    assert found < KERNEL_FP32


@pytest.mark.parametrize(("M", "N", "K"), [(300, 70, 40), (20, 24, 300), (8, 20, 600), (1, 5, 3)])
def test_fused_linear_of_every_shape(M: int, N: int, K: int) -> None:
    half = difference("fused_linear", *layer(M, N, K), half=(0, 1), eps=1e-6, activation="gelu")
    whole = difference("fused_linear", *layer(M, N, K, residual=M))

    assert half < KERNEL_FP16
    assert whole < KERNEL_FP32


def test_a_residual_that_is_repeated_is_read_again_and_again() -> None:
    from samgraph.engines.torch.kernels.linear_rules import fused_linear

    x, weight, bias = (torch.from_numpy(a) for a in (normal(3, 20, 8), normal(6, 8), normal(6)))
    residual = torch.from_numpy(normal(1, 20, 6))

    found = fused_linear(x, weight, bias, residual.expand(3, 20, 6))

    np.testing.assert_allclose(found, x @ weight.T + bias + residual, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("K", [12, 300])
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_pooling_takes_the_largest_of_each_two_by_two(K: int, eps: float) -> None:
    arrays = [normal(2, 6, 8, K), normal(20, K) / K**0.5, normal(20)]

    assert difference("fused_linear", *arrays, pool=True, eps=eps) < KERNEL_FP32


@pytest.mark.parametrize("unrotated", [0, 3])
@pytest.mark.parametrize("rotated", [32, 48])
def test_rotation_of_the_first_columns(unrotated: int, rotated: int) -> None:
    tokens = 2 * 12 + unrotated
    arrays = [normal(2, tokens, 20), normal(48, 20) / 4, normal(48)]
    where: dict[str, Any] = {"grid": (3, 4), "theta": 10000.0, "unrotated": unrotated}

    found = difference("fused_linear", *arrays, rotated=rotated, width=16, eps=1e-5, **where)

    assert found < KERNEL_FP32
    plain = difference("fused_linear", *arrays, eps=1e-5)
    assert plain < KERNEL_FP32


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_blocks(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from samgraph.engines.torch.kernels import blocks, mlp

    arrays = [normal(50, 24) + 1, normal(64, 24) / 5, normal(64), normal(24, 64) / 8, normal(24)]
    apart = difference("fused_mlp", *arrays, eps=1e-6, activation=activation)
    monkeypatch.setattr(blocks, "mlp_blocks", lambda *_: mlp.Blocks(32, 16, 4, 2))

    joined = difference("fused_mlp", *arrays, eps=1e-6, activation=activation)

    assert max(apart, joined) < KERNEL_FP32


def test_layers_of_their_own_for_each_token() -> None:
    arrays = [normal(5, 3, 40), normal(3, 20, 40) / 6, normal(3, 20)]

    assert difference("grouped_linear", *arrays, activation="relu") < KERNEL_FP32


def test_layer_norm_of_rows() -> None:
    from samgraph.engines.torch.kernels.decoder_rules import layer_norm

    x, scale, shift = (torch.from_numpy(a) for a in (normal(3, 7, 24) + 5, normal(24), normal(24)))

    found = layer_norm(x, scale, shift, eps=1e-6)

    expected = torch.nn.functional.layer_norm(x, (24,), scale, shift, 1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
