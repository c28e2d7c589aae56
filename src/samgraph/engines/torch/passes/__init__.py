"""Passes that introduce the engine's own ops, in the order they run after the shared passes."""

import samgraph.engines.torch.ops  # noqa: F401  # the ops that the passes put in
from samgraph.engines.torch.passes.attend_image import attend_image
from samgraph.engines.torch.passes.attend_tokens import attend_tokens
from samgraph.engines.torch.passes.attend_windows import attend_windows
from samgraph.engines.torch.passes.defer_biases import defer_biases
from samgraph.engines.torch.passes.fuse_convolutions import fuse_convolutions
from samgraph.engines.torch.passes.fuse_linears import fuse_linears
from samgraph.engines.torch.passes.fuse_mask_upscaling import fuse_mask_upscaling
from samgraph.engines.torch.passes.fuse_mlps import fuse_mlps
from samgraph.engines.torch.passes.fuse_rotations import fuse_rotations
from samgraph.engines.torch.passes.group_mlps import group_mlps
from samgraph.engines.torch.passes.join_slices import join_slices
from samgraph.engines.torch.passes.maps_channels_last import maps_channels_last
from samgraph.engines.torch.passes.merge_columns import merge_columns
from samgraph.engines.torch.passes.read_bank import read_bank
from samgraph.passes.pipeline import Precision, Step
from samgraph.passes.simplify_movement import simplify_movement

_WITH_KERNELS: tuple[Precision, ...] = ("tf32", "bf16", "fp16")

FUSED_PASSES: tuple[Step, ...] = tuple(
    Step(run, _WITH_KERNELS)
    for run in (
        read_bank,
        attend_windows,
        attend_image,
        attend_tokens,
        fuse_mask_upscaling,
        group_mlps,
        join_slices,
        fuse_convolutions,
        maps_channels_last,
        simplify_movement,
        merge_columns,
        fuse_rotations,
        fuse_linears,
        fuse_mlps,
        defer_biases,
    )
)
