"""The graphs of EdgeTAM: its own trunk and memory, the decoder of SAM 2."""

from functools import lru_cache

from samgraph.graph import Builder, Graph
from samgraph.models.edgetam.config import EdgeTamConfig
from samgraph.models.edgetam.memory import DESIGN
from samgraph.models.edgetam.repvit import repvit
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.neck import neck

_VARIANCE, _COUNTER = "running_var", "num_batches_tracked"


def image_encoder(config: EdgeTamConfig) -> Graph:
    """image [B, 3, S, S], normalised -> embedding [B, C, E, E], fine_0, fine_1."""
    builder = Builder("image_encoder")
    S = config.image_size
    image = builder.input("image", f"f32[B,3,{S},{S}]")
    at = builder.scope()
    encoder = at / "image_encoder"
    maps = repvit(encoder / "trunk" / "body", config, image)
    levels = neck(encoder / "neck", config, maps)
    return builder.finish(graphs.pyramid_features(at, config, levels))


def unread(config: EdgeTamConfig) -> dict[str, tuple[int, ...]]:
    """Tensors of a checkpoint that no graph reads: also the counters of batch norms."""
    return graphs.unread(config) | dict.fromkeys(_counters(config.smallest()), ())


@lru_cache(maxsize=8)
def _counters(config: EdgeTamConfig) -> tuple[str, ...]:
    names = [value.name for value in image_encoder(config).params]
    return tuple(
        name.removesuffix(_VARIANCE) + _COUNTER for name in names if name.endswith(_VARIANCE)
    )


GRAPHS = graphs.graph_set(image_encoder, DESIGN, unread)
