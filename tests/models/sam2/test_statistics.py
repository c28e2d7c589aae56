"""The cost of a graph, counted by hand."""

from samgraph import ops
from samgraph.graph import Builder
from samgraph.models.sam2.statistics import measure


def test_the_cost_of_a_linear_layer_is_counted() -> None:
    builder = Builder("layer")
    x, weight = builder.input("x", "f32[B,5,8]"), builder.param("weight", "f32[4,8]")
    graph = builder.finish(y=ops.relu(ops.linear(x, weight)) + 1.0)

    found = measure(graph, {"B": 3})

    assert found.ops == {"linear": 1, "relu": 1, "constant": 1, "add": 1}
    assert found.nodes == 3
    assert found.parameters == 32
    assert found.weight_bytes == 4 * 32
    assert found.multiply_adds == 3 * 5 * 8 * 4
    assert found.value_bytes == 3 * (4 * 3 * 5 * 4)


def test_symbols_have_typical_values_unless_given() -> None:
    builder = Builder("relu")
    graph = builder.finish(y=ops.relu(builder.input("x", "f32[F,Q]")))

    assert measure(graph).value_bytes == 4 * 7 * 16
    assert measure(graph, {"F": 1}).value_bytes == 4 * 16
