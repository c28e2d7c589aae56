"""The operations, one file each: meaning in words, type rule, slow numpy reference.

Each file also has the function that traces it: ``from samgraph.ops import linear, relu``.
"""

import samgraph.ops.constant  # noqa: F401  (fills the table; constants have no function)
from samgraph.graph.registry import OPS, Op
from samgraph.ops.add import add
from samgraph.ops.attention import attention
from samgraph.ops.axial_rope import axial_rope
from samgraph.ops.cast import cast
from samgraph.ops.clip import clip
from samgraph.ops.compare import compare
from samgraph.ops.concat import concat
from samgraph.ops.conv2d import conv2d
from samgraph.ops.conv_transpose2d import conv_transpose2d
from samgraph.ops.cos import cos
from samgraph.ops.div import div
from samgraph.ops.exp import exp
from samgraph.ops.expand import expand
from samgraph.ops.gather import gather
from samgraph.ops.gelu import gelu
from samgraph.ops.layer_norm import layer_norm
from samgraph.ops.layer_norm_2d import layer_norm_2d
from samgraph.ops.linear import linear
from samgraph.ops.log import log
from samgraph.ops.matmul import matmul
from samgraph.ops.max_pool2d import max_pool2d
from samgraph.ops.maximum import maximum
from samgraph.ops.minimum import minimum
from samgraph.ops.mul import mul
from samgraph.ops.pad import pad
from samgraph.ops.reduce import reduce
from samgraph.ops.relu import relu
from samgraph.ops.reshape import reshape
from samgraph.ops.resize import resize
from samgraph.ops.sigmoid import sigmoid
from samgraph.ops.sin import sin
from samgraph.ops.slice import slice_along
from samgraph.ops.softmax import softmax
from samgraph.ops.sqrt import sqrt
from samgraph.ops.sub import sub
from samgraph.ops.tile import tile
from samgraph.ops.transpose import transpose
from samgraph.ops.where import where

__all__ = [
    "OPS",
    "Op",
    "add",
    "attention",
    "axial_rope",
    "cast",
    "clip",
    "compare",
    "concat",
    "conv2d",
    "conv_transpose2d",
    "cos",
    "div",
    "exp",
    "expand",
    "gather",
    "gelu",
    "layer_norm",
    "layer_norm_2d",
    "linear",
    "log",
    "matmul",
    "max_pool2d",
    "maximum",
    "minimum",
    "mul",
    "pad",
    "reduce",
    "relu",
    "reshape",
    "resize",
    "sigmoid",
    "sin",
    "slice_along",
    "softmax",
    "sqrt",
    "sub",
    "tile",
    "transpose",
    "where",
]
