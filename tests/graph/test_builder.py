"""Tracing: operators, broadcasting, numbers, scopes, and errors at the author's line."""

import inspect
from collections.abc import Callable

import numpy as np
import pytest

from samgraph import ops
from samgraph.errors import CheckpointError, GraphError, ShapeError
from samgraph.graph import Builder, Scope, Tensor, trace
from samgraph.graph.evaluation import evaluate_graph
from samgraph.graph.types import Array


def run(graph_of: Callable[[Tensor], Tensor], x: Array) -> Array:
    builder = Builder()
    tensor = builder.input("x", f"f32[{','.join(map(str, x.shape))}]")
    graph = builder.finish(y=graph_of(tensor))
    return evaluate_graph(graph, {"x": x}, {})["y"]


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("traced", "expected"),
    [
        (lambda x: x + 1, X + 1),
        (lambda x: 1 + x, X + 1),
        (lambda x: x - 2, X - 2),
        (lambda x: 2 - x, 2 - X),
        (lambda x: x * x, X * X),
        (lambda x: 3 * x, X * 3),
        (lambda x: x / 4, X / 4),
        (lambda x: 4 / (x + 1), 4 / (X + 1)),
        (lambda x: -x, -X),
        (lambda x: x @ np.ones((3, 2), np.float32), X @ np.ones((3, 2))),
        (lambda x: np.ones((2, 3), np.float32) + x, X + 1),
        (lambda x: x + np.float32(1), X + 1),
        (lambda x: x < 3, X < 3),
        (lambda x: x <= 3, X <= 3),
        (lambda x: x > 3, X > 3),
        (lambda x: x >= 3, X >= 3),
        (lambda x: x == 3, X == 3),
        (lambda x: x != 3, X != 3),
        (lambda x: x.reshape(3, -1), X.reshape(3, 2)),
        (lambda x: x.transpose(1, 0), X.T),
    ],
)
def test_operators_are_those_of_numpy(traced: Callable[[Tensor], Tensor], expected: Array) -> None:
    np.testing.assert_array_equal(run(traced, X), expected)


def test_an_error_has_both_shapes_and_the_line_of_the_author() -> None:
    builder = Builder()
    a, b = builder.input("a", "f32[2,3]"), builder.input("b", "f32[4]")

    with pytest.raises(ShapeError) as caught:
        _wrong_sum(a, b)

    assert str(caught.value) == (
        "`add`: shapes do not broadcast\n"
        "  got:      f32[2,3] and f32[4]\n"
        "  expected: equal lengths, or 1"
    )
    line = inspect.getsourcelines(_wrong_sum)[1] + 1
    assert caught.value.__notes__ == [f"  at:       {__file__}:{line}, in _wrong_sum"]


def _wrong_sum(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def test_the_line_is_that_of_the_model_and_not_of_an_op() -> None:
    builder = Builder()
    x = builder.input("x", "f32[2,3]")

    with pytest.raises(ShapeError) as caught:
        ops.linear(x, builder.param("w", "f32[4,2]"))

    assert "test_the_line_is_that_of_the_model_and_not_of_an_op" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("i64", 0.5),
        ("u8", 256),
        ("u8", -1),
        ("i32", 2**31),
        ("i64", float("nan")),
        ("i64", float("inf")),
        ("bool", 2),
    ],
)
def test_a_number_that_the_dtype_cannot_hold_is_refused(dtype: str, number: float) -> None:
    builder = Builder()
    x = builder.input("x", f"{dtype}[2]")

    with pytest.raises(ShapeError, match=f"{number} is not a number of {dtype}"):
        ops.compare(x, number, "eq")


def test_a_number_takes_the_dtype_of_the_tensor() -> None:
    builder = Builder()

    assert (builder.input("a", "f16[2]") * 2).dtype == "f16"
    assert (builder.input("b", "i64[2]") * 2).dtype == "i64"
    assert (builder.input("c", "i32[2]") + 2.0).dtype == "i32"
    assert (builder.input("d", "f32[2]") > 1e300).dtype == "bool"


def test_an_array_keeps_its_dtype() -> None:
    builder = Builder()
    x = builder.input("x", "f32[2]")

    with pytest.raises(ShapeError, match="dtypes differ"):
        x + np.ones(2)


def test_numpy_numbers_in_attributes_become_plain_ones() -> None:
    builder = Builder()
    x = builder.input("x", "f32[1,2,4,4]")
    y = ops.max_pool2d(x, kernel=(np.int64(2), np.int64(2)), stride=[2, 2])  # type: ignore[arg-type]  # a list
    graph = builder.finish(y=y)

    assert "max_pool2d(%x, kernel=(2,2), stride=(2,2))" in str(graph)


def test_unknown_things_are_refused_by_name() -> None:
    builder = Builder()
    x = builder.input("x", "f32[2]")

    with pytest.raises(ShapeError, match="`add` cannot take a `str`"):
        x + "1"  # type: ignore[operator]  # that is the point
    with pytest.raises(GraphError, match="there is no operation `addd`"):
        builder.emit("addd", x, x, like=None)
    with pytest.raises(GraphError, match="are not supported"):
        x + np.array(["a"])
    with pytest.raises(ShapeError, match="`concat` needs at least one traced tensor"):
        ops.concat([], 0)


def test_tensors_of_two_graphs_do_not_mix() -> None:
    one, two = Builder(), Builder()
    a, b = one.input("a", "f32[2]"), two.input("b", "f32[2]")

    with pytest.raises(GraphError, match=r"%b: f32\[2\] belongs to another graph"):
        a + b
    with pytest.raises(GraphError, match="output `y` belongs to another graph"):
        one.finish(y=b)


def test_a_traced_tensor_has_no_truth_value_and_no_hash() -> None:
    builder = Builder()
    x = builder.input("x", "f32[M,3]")

    with pytest.raises(ShapeError, match="no truth value"):
        bool(x == x)
    with pytest.raises(TypeError):
        hash(x)
    with pytest.raises(ShapeError, match="length"):
        len(x)
    assert len(builder.input("y", "f32[3]")) == 3
    assert repr(x) == "%x: f32[M,3]"


@pytest.mark.parametrize("name", ["a b", "a,b", "", "x:y", "7", "%x", 'a"b', "a=b", "a(b)"])
def test_a_name_that_could_not_be_printed_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="has the name"):
        Builder().input(name, "f32[2]")
    with pytest.raises(GraphError, match="has the name"):
        Builder().param(name, "f32[2]")


def test_names_of_graphs_and_outputs_are_checked_too() -> None:
    builder = Builder("my graph")
    x = builder.input("x", "f32[2]")

    with pytest.raises(GraphError, match="a graph has the name `my graph`"):
        builder.finish(y=x)
    builder.name = "fine"
    with pytest.raises(GraphError, match="an output has the name `y z`"):
        builder.finish({"y z": x})
    with pytest.raises(GraphError, match="graph `fine` has no output"):
        builder.finish()


def test_a_name_is_declared_once() -> None:
    builder = Builder()
    builder.input("x", "f32[2]")

    with pytest.raises(GraphError, match="`x` is declared twice"):
        builder.param("x", "f32[2]")


def test_a_param_may_be_read_twice_with_one_type_only() -> None:
    builder = Builder()
    first = builder.param("w", "f32[2]")

    assert builder.param("w", "f32[2]").value == first.value
    with pytest.raises(GraphError, match="`w` is declared twice"):
        builder.param("w", "f32[3]")


def test_a_scope_is_a_path_of_checkpoint_keys() -> None:
    builder = Builder()
    at = builder.scope() / "blocks" / 0 / "mlp"

    weight = at.weight("weight", 4, 8)

    assert weight.value.name == "blocks.0.mlp.weight"
    assert str(weight.type) == "f32[4,8]"


def test_a_missing_weight_names_itself_and_its_neighbours() -> None:
    known = {"blocks.0.norm.weight": (8,), "blocks.0.norm.bias": (8,), "head.weight": (2, 8)}
    at = Builder().scope(known) / "blocks" / 1 / "norm"

    with pytest.raises(CheckpointError) as caught:
        at.weight("weight", 8)

    assert str(caught.value) == (
        "the checkpoint has no tensor `blocks.1.norm.weight`\n"
        "  got:      closest: blocks.0.norm.weight, blocks.0.norm.bias\n"
        "  hint: is this checkpoint for another model size?"
    )


def test_a_weight_of_another_shape_names_both() -> None:
    at = Builder().scope({"w": (8, 4)})

    with pytest.raises(CheckpointError) as caught:
        at.weight("w", 4, 8)

    assert str(caught.value) == (
        "tensor `w` has another shape\n  got:      [8, 4]\n  expected: [4, 8]"
    )


def test_trace_runs_a_model_once() -> None:
    def model(at: Scope, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"sum": x + y, "scaled": x * at.weight("scale", 3)}

    graph = trace("model", model, {"x": "f32[B,3]", "y": "f32[B,3]"}, known={"scale": (3,)})

    assert [name for name, _ in graph.outputs] == ["sum", "scaled"]
    assert [value.name for value in graph.params] == ["scale"]
    assert trace("one", lambda at, x: x, {"x": "f32[2]"}).output("output").name == "x"


def test_exact_marks_the_nodes_made_inside() -> None:
    builder = Builder()
    x = builder.input("x", "f32[2]")
    with builder.exact():
        y = ops.sin(x)
        with builder.exact():
            y = ops.cos(y)
        y = ops.exp(y)
    graph = builder.finish(y=ops.relu(y))

    assert [(node.op, node.exact) for node in graph] == [
        ("sin", True),
        ("cos", True),
        ("exp", True),
        ("relu", False),
    ]


def test_a_graph_tells_its_parts_by_name() -> None:
    builder = Builder("g")
    x = builder.input("x", "f32[B,M]")
    graph = builder.finish(y=ops.relu(x))

    assert graph.input("x") == x.value
    assert graph.output("y").name == "0"
    assert graph.symbols == ("B", "M")
    assert repr(graph) == "<graph g: 1 nodes, 0 params>"
    with pytest.raises(GraphError, match="has no input `z`"):
        graph.input("z")
    with pytest.raises(GraphError, match="has no output `z`"):
        graph.output("z")


def test_a_mark_names_a_value_and_can_move() -> None:
    builder = Builder()
    x = builder.input("x", "f32[2]")
    first = (builder.scope() / "a" / 0).mark("b", ops.sin(x))
    second = builder.mark("a.0.b", ops.cos(first))
    graph = builder.finish(y=ops.exp(second))

    assert graph.marks == (("a.0.b", second.value),)
    with pytest.raises(GraphError, match="a mark has the name `a b`"):
        builder.mark("a b", x)
    with pytest.raises(GraphError, match="`a` marks a value of another graph"):
        Builder().mark("a", x)
