"""Pipelines: the passes of an engine in the order they run, checked after each.

`PASSES` are those that several engines share. An engine's pipeline is a tuple of steps: most begin
with `COMMON`, and go on with passes of the engine's own (`engines/*/passes/`).
"""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from samgraph.errors import GraphError, OptionError, SamgraphError
from samgraph.graph.graph import Graph
from samgraph.graph.verifier import verify
from samgraph.passes.absorb_key_projection import absorb_key_projection
from samgraph.passes.absorb_query_projection import absorb_query_projection
from samgraph.passes.absorb_scale import absorb_scale
from samgraph.passes.absorb_value_projection import absorb_value_projection
from samgraph.passes.conv_transpose_to_linear import conv_transpose_to_linear
from samgraph.passes.decompose_axial_rope import decompose_axial_rope
from samgraph.passes.decompose_layer_norm_2d import decompose_layer_norm_2d
from samgraph.passes.drop_unused import drop_unused
from samgraph.passes.fold_batch_norm import fold_batch_norm
from samgraph.passes.fold_constants import fold_constants
from samgraph.passes.fuse_attention import fuse_attention
from samgraph.passes.fuse_linear_activation import fuse_linear_activation
from samgraph.passes.merge_depthwise import merge_depthwise
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
Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

PASSES: dict[str, Pass] = {
    step.__name__: step
    for step in (
        drop_unused,
        fold_constants,
        fold_batch_norm,
        merge_depthwise,
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
        decompose_axial_rope,
        decompose_layer_norm_2d,
    )
}

# What an engine wants or not: merge_projections is for engines that launch a kernel per node (on
# OpenVINO copying the slices costs more than one larger product gains), pixels_to_channels and
# tile_sums were measured on OpenVINO alone, sink_expand is what hoist_shared begins with, and a
# decomposition is for engines that lack the op.
_BY_ENGINE = (
    "merge_projections",
    "pixels_to_channels",
    "sink_expand",
    "tile_sums",
    "decompose_axial_rope",
    "decompose_layer_norm_2d",
)
ALL, FOLD = "all", "fold_params"  # what a profile may also name


@dataclass(frozen=True, slots=True)
class Step:
    """A pass in an engine's pipeline: for which precisions, and whether it may be left out."""

    run: Pass
    precisions: tuple[Precision, ...] = PRECISIONS
    required: bool = False  # the engine cannot compile a graph without it
    optional: bool = False  # runs only where a profile names it in `also`

    @property
    def name(self) -> str:
        """The name of the pass."""
        return self.run.__name__

    @property
    def summary(self) -> str:
        """What the pass does, in one line."""
        return summary_of(self.run)


def summary_of(run: Callable[..., object]) -> str:
    """The first line of the file of a pass, without the name."""
    text = (sys.modules[run.__module__].__doc__ or "").partition("\n")[0]
    return text.removeprefix(f"{run.__name__}: ")


COMMON: tuple[Step, ...] = tuple(
    Step(run) for name, run in PASSES.items() if name not in _BY_ENGINE
)


def passes_for(
    pipeline: Sequence[Step],
    precision: Precision = "fp32",
    *,
    without: Collection[str] = (),
    also: Collection[str] = (),
) -> tuple[Pass, ...]:
    """The passes of a pipeline in a precision, less those in `without`, plus those in `also`.

    `without` may name `all`: then only those stay that the engine cannot do without.
    """
    steps = list(pipeline)
    names = {step.name for step in steps}
    required = {step.name for step in steps if step.required}
    for name in (*without, *also):
        if name not in names | PASSES.keys() | {ALL, FOLD}:
            expected = ", ".join(dict.fromkeys([*names, *PASSES]))
            raise OptionError(f"there is no pass `{name}`", expected=expected)
    for name in without:
        if name in required:
            raise OptionError(f"this engine cannot compile without the pass `{name}`")
    for name in also:
        if name not in names and name in PASSES:
            steps.insert(_position(steps, name), Step(PASSES[name]))
    off = names - required if ALL in without else set(without)
    off |= {step.name for step in steps if step.optional}
    off -= set(also)
    return tuple(
        step.run for step in steps if precision in step.precisions and step.name not in off
    )


def _position(steps: Sequence[Step], name: str) -> int:
    """Where a shared pass belongs: behind those that stand before it in the table."""
    before = set(list(PASSES)[: list(PASSES).index(name)])
    first: dict[str, int] = {}
    for index, step in enumerate(steps):
        first.setdefault(step.name, index)
    return max((index + 1 for step, index in first.items() if step in before), default=0)


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
