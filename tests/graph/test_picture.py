"""Pictures of graphs: SVG that is well-formed XML, DOT whose braces and quotes match."""

import re
from xml.etree import ElementTree

import numpy as np
from hypothesis import given, settings

from samgraph import ops
from samgraph.graph import Builder, Graph, to_dot, to_svg
from tests.graph.random_graphs import graphs

SVG = "{http://www.w3.org/2000/svg}"


@settings(max_examples=30)
@given(graphs())
def test_an_svg_is_well_formed_and_shows_every_node(graph: Graph) -> None:
    tree = ElementTree.fromstring(to_svg(graph))

    shown = [node for node in graph if node.op != "constant"]
    boxes = len(tree.findall(f"{SVG}rect")) - 1  # one is the background
    assert boxes == len(graph.inputs) + len(shown) + len(graph.outputs)
    assert tree.findtext(f"{SVG}title") == graph.name
    width, height = float(tree.attrib["width"]), float(tree.attrib["height"])
    for box in tree.findall(f"{SVG}rect"):
        at = [float(box.attrib.get(key, 0)) for key in ("x", "y", "width", "height")]
        assert at[0] + at[2] <= width
        assert at[1] + at[3] <= height


@settings(max_examples=30)
@given(graphs())
def test_dot_names_every_node_once_and_every_edge_between_known_ones(graph: Graph) -> None:
    lines = to_dot(graph).splitlines()

    assert lines[0] == f'digraph "{graph.name}" {{'
    assert lines[-1] == "}"
    declared = [found[1] for line in lines if (found := re.match(r'  "([^"]+)" \[label', line))]
    edges = [re.findall(r'"([^"]+)"', line) for line in lines if "->" in line]
    assert len(declared) == len(set(declared))
    assert {end for edge in edges for end in edge} <= set(declared)


def test_a_graph_shows_itself_in_a_notebook() -> None:
    builder = Builder("g")
    x = builder.input("x", "f32[2,3]")
    y = ops.linear(x, (builder.scope() / "layers" / 0).weight("weight", 4, 3))
    graph = builder.finish(y=y, fixed=builder.constant(np.ones(3)))

    assert graph._repr_svg_().startswith("<svg ")
    assert "linear layers.0" in to_svg(graph)
    assert "f32[2,4]" in to_dot(graph)
