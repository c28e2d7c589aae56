"""Rotations that must stay beside others: fused alone, their channels would be in another order."""

from collections.abc import Callable

import pytest

from samgraph import ops
from samgraph.graph import Builder, Graph
from samgraph.models.sam2 import memory_attention
from samgraph.models.sam2.layers import linear
from tests.engines.torch.passes.cases import Sizes, _cells
from tests.engines.torch.passes.test_passes import before_and_pass

pytest.importorskip("torch")

SIZES = Sizes()
C, CONFIG = SIZES.channels, SIZES.config


def a_layer_shared_with_attention_to_pooled_keys() -> Graph:
    """Queries of both are one layer, which pooled keys keep as it is: so other keys stay too."""
    builder = Builder("shared")
    x, memory, other = (_cells(builder, SIZES, name) for name in ("image", "memory", "other"))
    at = builder.scope()
    pooled = memory_attention.rotate(CONFIG, linear(at / "pooled_k", memory, C), 0)
    pooled = ops.reduce(pooled, (1,), how="mean", keep=True)
    plain = memory_attention.rotate(CONFIG, linear(at / "plain_k", other, C), 0)
    found = {}
    for name, k, v in (("pooled", pooled, memory[:, :1]), ("plain", plain, other)):
        q = memory_attention.rotate(CONFIG, linear(at / f"{name}_q", x, C), 0)
        found[name] = ops.attention(q, k, v, heads=1, scale=C**-0.5)
    return builder.finish(**found)


def rotated_keys_that_are_an_output() -> Graph:
    builder = Builder("returned")
    x, memory, at = _cells(builder, SIZES), _cells(builder, SIZES, "memory"), builder.scope()
    q = memory_attention.rotate(CONFIG, linear(at / "q", x, C), 0)
    k = memory_attention.rotate(CONFIG, linear(at / "k", memory, C), 0)
    return builder.finish(y=ops.attention(q, k, memory, heads=1, scale=C**-0.5), k=k)


@pytest.mark.parametrize(
    "make", [a_layer_shared_with_attention_to_pooled_keys, rotated_keys_that_are_an_output]
)
def test_rotations_that_cannot_be_fused_stay(make: Callable[[], Graph]) -> None:
    before, fuse = before_and_pass("fuse_rotations", make())

    assert fuse(before) == before
