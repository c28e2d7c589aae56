"""Typed access: lengths of a type and attributes of a node, or one sentence of what is wrong."""

import numpy as np
import pytest

from samgraph.errors import GraphError, ShapeError
from samgraph.graph import Literal, Node, TensorType, Value, symbol

M = symbol("M")
NODE = Node(
    "op",
    (),
    {
        "groups": 2,
        "stride": (1, 2),
        "eps": 1e-6,
        "how": "sum",
        "keep": True,
        "unrotated": 4 * M,
        "shape": (1, M),
        "value": Literal(np.arange(3)),
    },
    Value("0", TensorType((1,))),
)


def test_attributes_come_with_their_type() -> None:
    assert NODE.integer("groups") == 2
    assert NODE.integers("stride") == (1, 2)
    assert NODE.number("eps") == 1e-6
    assert NODE.number("groups") == 2.0
    assert NODE.text("how") == "sum"
    assert NODE.text("activation", "none") == "none"
    assert NODE.flag("keep") is True
    assert (NODE.dim("unrotated"), NODE.dim("groups")) == (4 * M, 2)
    assert NODE.dims("shape") == (1, M)
    assert NODE.array().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        ("integer", "keep", "`keep` of `op` is not of type int\n  got:      `True`"),
        ("integer", "none", "`none` of `op` is not of type int\n  got:      `None`"),
        ("integer", "unrotated", "`unrotated` of `op` is not of type int\n  got:      `4*M`"),
        ("integers", "groups", "`groups` of `op` is not of type tuple\n  got:      `2`"),
        ("integers", "shape", "`shape` of `op` is not of type int\n  got:      `M`"),
        ("number", "how", "`how` of `op` is not of type float or int\n  got:      `sum`"),
        ("text", "eps", "`eps` of `op` is not of type str\n  got:      `1e-06`"),
        ("flag", "groups", "`groups` of `op` is not of type bool\n  got:      `2`"),
        ("dims", "how", "`how` of `op` is not of type tuple\n  got:      `sum`"),
        ("array", "how", "`how` of `op` is not of type Literal\n  got:      `sum`"),
    ],
)
def test_an_attribute_of_another_kind_is_refused(kind: str, key: str, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        getattr(NODE, kind)(key)

    assert str(caught.value) == message


def test_lengths_are_numbers() -> None:
    type = TensorType((2, M, 3))

    assert (type.length(0), type.length(-1)) == (2, 3)
    assert TensorType((4, 5)).lengths == (4, 5)
    for read in (lambda: type.length(1), lambda: type.lengths):
        with pytest.raises(ShapeError) as caught:
            read()
        assert str(caught.value) == "a length that must be known is symbolic\n  got:      `M`"
