"""What passes make of the model's graphs: as little work as when it was written by hand."""

import pytest

from samgraph.graph import Graph, Node
from samgraph.models.nano.config import NANO
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.config import CONFIGS
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.passes import PASSES, optimise
from samgraph.passes.pipeline import COMMON

CONFIG_NAMES = {"nano": NANO, "tiny": CONFIGS["sam2.1-tiny"], "large": CONFIGS["sam2.1-large"]}


def rewritten(graph: Graph, engine: str = "openvino") -> Graph:
    """After the shared passes that an engine has; its own would hide what they did."""
    also = {"openvino": ("pixels_to_channels", "tile_sums"), "torch": ("merge_projections",)}
    shared = [step.run for step in COMMON] + [PASSES[name] for name in also[engine]]
    return optimise(graph, shared)


def of(graph: Graph, op: str) -> list[Node]:
    return [node for node in graph if node.op == op]


def over_cells(graph: Graph, config: TrackerConfig) -> list[Node]:
    """Linear layers of every cell of the image, for each prompt."""
    cells = config.grid**2
    return [node for node in of(graph, "linear") if node.result.type.shape[1:2] == (cells,)]


@pytest.mark.parametrize("engine", ["openvino", "torch"])
@pytest.mark.parametrize("name", CONFIG_NAMES)
def test_no_cell_is_projected_for_a_prompt(name: str, engine: str) -> None:
    config = CONFIG_NAMES[name]

    graph = rewritten(graphs.decode(config), engine)

    assert not of(graph, "conv_transpose2d")
    assert len(of(graph, "attention")) == 2  # self-attention of the tokens
    (upscaled,) = over_cells(graph, config)
    assert upscaled.result.type.shape[-1] == config.channels


@pytest.mark.parametrize("name", CONFIG_NAMES)
def test_a_prepared_image_is_projected_once(name: str) -> None:
    config = CONFIG_NAMES[name]

    first, rest = (
        rewritten(graph) for graph in (graphs.prepare_image(config), graphs.decode_prepared(config))
    )

    assert len(over_cells(first, config)) == 3  # keys, values and queries of the first layer
    assert len(over_cells(rest, config)) == 1
    assert len(of(rest, "attention")) == 3  # and the first layer's tokens, all prompts side by side
    assert not of(rest, "expand")[2:]  # the output tokens and the end of the points
    moved = [node for node in of(rest, "transpose") if len(node.result.type.shape) > 4]
    refined = config.mask_stride == 2  # then the coarse masks are resized before
    assert len(moved) == 1 + refined  # the finished masks


def test_what_is_prepared_is_what_the_first_layer_reads() -> None:
    outputs = dict(graphs.prepare_image(NANO).outputs)

    layer = "sam_mask_decoder.transformer.layers.0."
    assert set(outputs) == {
        "sam_mask_decoder.image",
        f"{layer}cross_attn_token_to_image.k",
        f"{layer}cross_attn_token_to_image.v",
        f"{layer}cross_attn_image_to_token.q",
        "fine_0.0",
        "fine_1.0",
        "finest.0",
    }
    given = {value.name for value in graphs.decode_prepared(NANO).inputs}
    assert given == {*outputs, "points", "labels"}


def test_an_image_is_repeated_for_its_objects_only_where_openvino_needs_it() -> None:
    graph = graphs.encode_memory(NANO)

    assert not of(graph, "tile")
    assert not of(rewritten(graph, "torch"), "tile")
    assert len(of(rewritten(graph), "tile")) == 1
