"""The teacher's graphs: every tensor of its file has a place, and what was folded is the same."""

import numpy as np

from training import teacher
from training.teacher import decode_graph, encode_graph


def test_the_graphs_have_the_shapes_of_sam() -> None:
    encode = encode_graph()
    assert str(dict(encode.outputs)["embedding"].type) == "f32[B,256,64,64]"
    decode = decode_graph()
    assert str(dict(decode.outputs)["masks"].type) == "f32[N,4,256,256]"
    names = {value.name for graph in (encode, decode) for value in graph.params}
    assert len(names) == 327


def test_a_batch_norm_is_folded_into_its_convolution() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 3, 1, 1)).astype(np.float32)
    norm = {
        "c.bn.weight": rng.random(4) + 0.5,
        "c.bn.bias": rng.standard_normal(4),
        "c.bn.running_mean": rng.standard_normal(4),
        "c.bn.running_var": rng.random(4) + 0.5,
    }
    x = rng.standard_normal(3)
    plain = weight[:, :, 0, 0] @ x
    scale = norm["c.bn.weight"] / np.sqrt(norm["c.bn.running_var"] + 1e-5)
    expected = (plain - norm["c.bn.running_mean"]) * scale + norm["c.bn.bias"]

    folded = teacher._folded("c", weight, norm)

    found = folded["c.weight"][:, :, 0, 0] @ x + folded["c.bias"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
