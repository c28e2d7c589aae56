"""The pipeline of OpenVINO: shared passes, decompositions, and its own passes."""

from samgraph.engines.native import ABSORB_KEY_ROTATION, ATTENTION_TO_FLASH
from samgraph.engines.openvino.passes.absorb_norm_weights import absorb_norm_weights
from samgraph.engines.openvino.passes.convolve_narrow_norms import convolve_narrow_norms
from samgraph.engines.openvino.passes.expose_channels_last import expose_channels_last
from samgraph.engines.openvino.passes.linear_to_pointwise import linear_to_pointwise
from samgraph.engines.openvino.passes.maps_to_tokens import maps_to_tokens
from samgraph.engines.openvino.passes.products_in_bf16 import products_in_bf16
from samgraph.engines.openvino.passes.resize_to_matmul import resize_to_matmul
from samgraph.passes.decompose_axial_rope import decompose_axial_rope
from samgraph.passes.decompose_layer_norm_2d import decompose_layer_norm_2d
from samgraph.passes.merge_duplicates import merge_duplicates
from samgraph.passes.pipeline import COMMON, Step
from samgraph.passes.pixels_to_channels import pixels_to_channels
from samgraph.passes.simplify_movement import simplify_movement
from samgraph.passes.tile_sums import tile_sums

PIPELINE: tuple[Step, ...] = (
    *COMMON,
    Step(pixels_to_channels),
    Step(tile_sums),
    ABSORB_KEY_ROTATION,
    Step(decompose_axial_rope, required=True),
    Step(decompose_layer_norm_2d, required=True),
    Step(resize_to_matmul),
    Step(merge_duplicates),
    Step(simplify_movement),
    Step(absorb_norm_weights),
    Step(convolve_narrow_norms),
    Step(simplify_movement),
    Step(linear_to_pointwise, precisions=("fp32",)),
    Step(simplify_movement),
    Step(maps_to_tokens),
    Step(simplify_movement),
    Step(expose_channels_last),
    Step(products_in_bf16, precisions=("bf16",)),
    ATTENTION_TO_FLASH,
)
