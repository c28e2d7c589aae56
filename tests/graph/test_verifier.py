"""The verifier catches each broken rule, and shows the node."""

from dataclasses import replace

import pytest

from samgraph import ops
from samgraph.errors import GraphError
from samgraph.graph import Builder, Graph, Node, TensorType, Value, symbol, verify

F32 = TensorType((2,))
X = Value("x", F32)
W = Value("w", F32)


def good() -> Graph:
    builder = Builder("g")
    x = builder.input("x", F32)
    w = builder.param("w", F32)
    return builder.finish(y=ops.relu(x + w))


def node(op: str, *inputs: Value, to: str, type: TensorType = F32, **attributes: object) -> Node:
    return Node(op, inputs, attributes, Value(to, type))  # type: ignore[arg-type]  # some are wrong


ADD, RELU = good().nodes


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (replace(good(), params=(X,)), "%x is declared twice in graph `g`"),
        (replace(good(), inputs=(X, X)), "%x is declared twice in graph `g`"),
        (replace(good(), nodes=(RELU, ADD)), "%0 is used before it is defined, in: %1"),
        (replace(good(), nodes=(ADD, ADD)), "%0 is defined twice, in: %0"),
        (replace(good(), nodes=(node("relu", X, to="x"),)), "%x is defined twice"),
        (
            replace(good(), nodes=(node("relu", Value("x", TensorType((3,))), to="0"),)),
            "%x is used with another type",
        ),
        (replace(good(), nodes=(node("rulu", X, to="0"),)), "there is no operation `rulu`"),
        (
            replace(good(), nodes=(node("relu", X, to="0", type=TensorType((3,))),)),
            "the type rule of `relu` gives f32[2], in: %0: f32[3] = relu(%x)",
        ),
        (
            replace(good(), nodes=(node("relu", X, to="0", type=TensorType((2,), "f16")),)),
            "the type rule of `relu` gives f32[2]",
        ),
        (
            replace(good(), nodes=(node("softmax", X, to="0", axis=4),)),
            "`softmax`: no such axis",
        ),
        (
            replace(good(), nodes=(node("softmax", X, to="0", axis="last"),)),
            "`softmax` does not take these arguments",
        ),
        (replace(good(), outputs=()), "graph `g` needs outputs with different names"),
        (replace(good(), marks=(("x", X),)), "the mark `x` of graph `g` is named like another"),
        (replace(good(), marks=(("w", X),)), "the mark `w` of graph `g` is named like another"),
        (replace(good(), marks=(("y", X),)), "the mark `y` of graph `g` is named like another"),
        (replace(good(), marks=(("a", X), ("a", W))), "the mark `a` of graph `g` is named like"),
        (replace(good(), marks=(("a", Value("9", F32)),)), "the mark a=%9 is never defined"),
        (replace(good(), marks=(("a b", X),)), "a mark has the name `a b`"),
        (replace(good(), marks=(("3", X),)), "a mark has the name `3`"),
        (replace(good(), outputs=(("y", X), ("y", W))), "needs outputs with different names"),
        (replace(good(), outputs=(("y", Value("9", F32)),)), "the output y=%9 is never defined"),
        (
            replace(good(), outputs=(("y", Value("1", TensorType((3,)))),)),
            "the output y=%1 is never defined",
        ),
        (
            replace(good(), params=(Value("w", TensorType((symbol("M"),))),), nodes=()),
            "param %w has a symbolic shape",
        ),
        (
            replace(good(), inputs=(Value("x", TensorType((symbol("M") * symbol("N"),))),)),
            "no input of graph `g` binds `M`",
        ),
        (
            replace(
                good(),
                nodes=(
                    node(
                        "expand", X, to="0", type=TensorType((symbol("Q"), 2)),
                        shape=(symbol("Q"), 2),
                    ),
                ),
            ),
            "no input binds `Q`",
        ),
        (
            replace(
                good(),
                nodes=(
                    node(
                        "slice", X, to="0", type=TensorType((1,)), starts=(symbol("Q"),),
                        ends=(symbol("Q") + 1,), steps=(1,),
                    ),
                ),
            ),
            "no input binds `Q`",
        ),
        (replace(good(), name="a b"), "a graph has the name `a b`"),
        (replace(good(), inputs=(X, Value("a,b", F32))), "an input has the name `a,b`"),
        (replace(good(), inputs=(X, Value("12", F32))), "an input has the name `12`"),
        (replace(good(), params=(W, Value("a b", F32))), "a param has the name `a b`"),
        (replace(good(), outputs=(("a=b", X),)), "an output has the name `a=b`"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(broken: Graph, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        verify(broken)

    assert message in str(caught.value)


def test_a_good_graph_passes() -> None:
    verify(good())


def test_a_stage_lists_the_ops_that_are_legal_in_it() -> None:
    verify(good(), legal={"add", "relu"})
    with pytest.raises(GraphError, match="`relu` is not legal at this stage, in: %1"):
        verify(good(), legal={"add"})


def test_an_op_is_registered_once() -> None:
    from samgraph.graph.registry import OPS, register

    with pytest.raises(GraphError, match="operation `add` is registered twice"):
        register("add", infer=OPS["add"].infer, reference=OPS["add"].reference)
