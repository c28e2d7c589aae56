"""The graphs of samgraph-nano: its own image encoder, the decoder and memory of SAM 2."""

from samgraph.graph import Builder, Graph, Scope, Tensor
from samgraph.models.nano.config import NanoConfig
from samgraph.models.nano.tinyvit import tinyvit
from samgraph.models.sam2.graphs import graph_set
from samgraph.models.sam2.layers import conv2d, layer_norm_2d
from samgraph.models.sam2.tracker_config import REFINED_CHANNELS


def image_encoder(config: NanoConfig) -> Graph:
    """image [B, 3, S, S], normalised -> embedding [B, C, E, E], fine_0, fine_1 and finest."""
    builder = Builder("image_encoder")
    S, C = config.image_size, config.channels
    image = builder.input("image", f"f32[B,3,{S},{S}]")
    at = builder.scope()
    encoder, decoder = at / "image_encoder", at / "sam_mask_decoder"
    maps = tinyvit(encoder / "trunk", config.trunk, image)
    return builder.finish(
        embedding=neck(encoder / "neck", config, maps.last),
        fine_0=conv2d(decoder / "conv_s0", maps.fine, C // 8, 1),
        fine_1=conv2d(decoder / "conv_s1", maps.middle, C // 4, 1),
        finest=conv2d(decoder / "conv_finest", maps.stem, REFINED_CHANNELS, 1),
    )


def neck(at: Scope, config: NanoConfig, x: Tensor) -> Tensor:
    """SAM's neck, then a 1x1 convolution: [B, C', E, E] -> [B, C, E, E]."""
    C = config.channels
    x = layer_norm_2d(at / 1, conv2d(at / 0, x, C, 1, bias=False), eps=config.norm_eps)
    x = conv2d(at / 2, x, C, 3, padding=1, bias=False)
    return conv2d(at / 4, layer_norm_2d(at / 3, x, eps=config.norm_eps), C, 1)


GRAPHS = graph_set(image_encoder)
