"""The passes in the order they run, for each engine. `optimise` checks the graph after each."""

from collections.abc import Callable, Collection, Sequence

from samgraph.errors import GraphError, OptionError, SamgraphError
from samgraph.graph.graph import Graph
from samgraph.graph.verifier import verify
from samgraph.passes.absorb_key_projection import absorb_key_projection
from samgraph.passes.absorb_query_projection import absorb_query_projection
from samgraph.passes.absorb_scale import absorb_scale
from samgraph.passes.absorb_value_projection import absorb_value_projection
from samgraph.passes.conv_transpose_to_linear import conv_transpose_to_linear
from samgraph.passes.drop_unused import drop_unused
from samgraph.passes.fold_constants import fold_constants
from samgraph.passes.fuse_attention import fuse_attention
from samgraph.passes.fuse_linear_activation import fuse_linear_activation
from samgraph.passes.merge_duplicates import merge_duplicates
from samgraph.passes.merge_linears import merge_linears
from samgraph.passes.merge_projections import merge_projections
from samgraph.passes.pixels_to_channels import pixels_to_channels
from samgraph.passes.pointwise_to_linear import pointwise_to_linear
from samgraph.passes.project_sums import project_sums
from samgraph.passes.simplify_movement import simplify_movement
from samgraph.passes.sink_expand import sink_expand
from samgraph.passes.tile_sums import tile_sums

Pass = Callable[[Graph], Graph]
Watch = Callable[[str, Graph], None]

PASSES: dict[str, Pass] = {
    step.__name__: step
    for step in (
        drop_unused,
        fold_constants,
        sink_expand,
        conv_transpose_to_linear,
        absorb_key_projection,
        absorb_query_projection,
        merge_duplicates,
        pointwise_to_linear,
        simplify_movement,
        absorb_scale,
        project_sums,
        merge_linears,
        fuse_attention,
        absorb_value_projection,
        fuse_linear_activation,
        merge_projections,
        pixels_to_channels,
        tile_sums,
    )
}

# merge_projections is for engines that launch a kernel per node. OpenVINO loses more by copying
# the slices than it gains by one larger product, so its list leaves it out. pixels_to_channels
# and tile_sums are for OpenVINO alone: there they were measured. sink_expand is what hoist_shared
# begins with, for graphs that run in two parts.
_NOT_COMMON = ("merge_projections", "pixels_to_channels", "tile_sums", "sink_expand")
_COMMON = tuple(name for name in PASSES if name not in _NOT_COMMON)
PIPELINES: dict[str, tuple[str, ...]] = {
    "reference": (),
    "openvino": (*_COMMON, "pixels_to_channels", "tile_sums"),
    "torch": (*_COMMON, "merge_projections"),
    "onnx": _COMMON,
}


def passes_for(
    engine: str, *, without: Collection[str] = (), also: Collection[str] = ()
) -> tuple[Pass, ...]:
    """The passes an engine wants, less those switched off, plus those asked for."""
    for name in (*without, *also):
        if name not in PASSES:
            raise OptionError(f"there is no pass `{name}`", expected=", ".join(PASSES))
    wanted = {*PIPELINES.get(engine, ()), *also} - set(without)
    return tuple(step for name, step in PASSES.items() if name in wanted)


def optimise(graph: Graph, passes: Sequence[Pass], watch: Watch | None = None) -> Graph:
    """Run `passes` in order, checking the graph after each so that the guilty one is named.

    `watch` is called with the name of each pass and the graph after it.
    """
    verify(graph)
    for step in passes:
        try:
            graph = step(graph)
            verify(graph)
        except SamgraphError as error:
            raise GraphError(f"after pass `{step.__name__}`: {error}") from error
        except Exception as error:
            error.add_note(f"  in pass `{step.__name__}`")
            raise
        if watch is not None:
            watch(step.__name__, graph)
    return graph
