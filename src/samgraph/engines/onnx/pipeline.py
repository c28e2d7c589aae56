"""The passes of ONNX models: those all engines share, and decompositions of what ONNX lacks."""

from samgraph.passes.decompose_axial_rope import decompose_axial_rope
from samgraph.passes.decompose_layer_norm_2d import decompose_layer_norm_2d
from samgraph.passes.merge_duplicates import merge_duplicates
from samgraph.passes.pipeline import COMMON, Step
from samgraph.passes.pixels_to_channels import pixels_to_channels
from samgraph.passes.simplify_movement import simplify_movement

PIPELINE: tuple[Step, ...] = (
    *COMMON,
    Step(pixels_to_channels),
    Step(decompose_axial_rope, required=True),
    Step(decompose_layer_norm_2d, required=True),
    Step(merge_duplicates),
    Step(simplify_movement),
)
