"""Images that grow as lists of cells: what is carried on, and what must be an image again."""

import pytest

from samgraph import ops
from samgraph.graph import Builder, Graph, Tensor, TensorType
from samgraph.passes import PASSES, optimise
from tests.passes.test_meaning import change, weights_of
from tests.tolerances import ALGEBRAIC_PASS


def image(builder: Builder, name: str, H: int, W: int) -> Tensor:
    """[B, 3, H, W], transposed from channels-last."""
    return ops.transpose(builder.input(name, f"f64[B,{H},{W},3]"), 0, 3, 1, 2)


def grown(builder: Builder, x: Tensor, name: str, k: int, out: int = 3) -> Tensor:
    weight = builder.param(name, TensorType((x.shape[1], out, k, k), "f64"))
    return ops.conv_transpose2d(x, weight, stride=(k, k))


def rewritten(graph: Graph) -> Graph:
    after = optimise(graph, [PASSES["conv_transpose_to_linear"], PASSES["simplify_movement"]])
    assert change(graph, after, weights_of(graph)) <= ALGEBRAIC_PASS
    return after


def count(graph: Graph, op: str) -> int:
    return sum(node.op == op for node in graph)


def test_pixels_that_are_flattened_and_put_back_stay_cells() -> None:
    builder = Builder()
    x = grown(builder, image(builder, "x", 2, 3), "w1", 2)
    B = x.shape[0]
    flat = ops.relu(x.reshape(B, 3, 24))
    y = grown(builder, flat.reshape(B, 3, 4, 6), "w2", 2)

    after = rewritten(builder.finish(y=y))

    assert count(after, "linear") == 2
    assert count(after, "transpose") == 3  # two of weights, one of the result


def test_another_shape_is_made_of_the_image() -> None:
    builder = Builder()
    x = grown(builder, image(builder, "x", 2, 3), "w", 2)

    rewritten(builder.finish(y=x.reshape(x.shape[0], 3, 6, 4), z=x.reshape(x.shape[0], 72)))


def test_one_pixel_can_become_a_number() -> None:
    builder = Builder()
    x = ops.transpose(builder.input("x", "f64[1,1,1,3]"), 0, 3, 1, 2)
    y = ops.conv_transpose2d(x, builder.param("w", "f64[3,1,1,1]"), stride=(1, 1))

    rewritten(builder.finish(y=y.reshape()))


@pytest.mark.parametrize("first", [0, 1])
def test_images_that_grew_in_other_steps_are_not_added_as_cells(first: int) -> None:
    builder = Builder()
    x = image(builder, "x", 2, 2)
    twice = grown(builder, grown(builder, x, "w1", 2), "w2", 2)
    once = grown(builder, x, "w4", 4)
    terms = (twice, once)

    rewritten(builder.finish(y=terms[first] + terms[1 - first], z=twice * twice + 1.0))


def test_a_number_for_each_channel_is_added_to_the_image() -> None:
    builder = Builder()
    x = grown(builder, image(builder, "x", 2, 2), "w", 2)

    rewritten(builder.finish(y=x * builder.param("scale", "f64[3,1,1]"), z=2.0 * x))


def test_what_stays_in_float32_still_does() -> None:
    builder = Builder()
    x = image(builder, "x", 2, 2)
    with builder.exact():
        y = ops.gelu(grown(builder, x, "w", 2) + 1.0)

    after = rewritten(builder.finish(y=y))

    computed = [node for node in after if node.op in ("linear", "gelu", "add")]
    assert len(computed) == 3
    assert all(node.exact for node in computed)
