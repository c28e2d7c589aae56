"""The memory of EdgeTAM: how its tokens are stored, recalled and attended to.

A frame is stored as global latents, then windowed latents. Those of windows have a position in a
grid of their own and are rotated by it; global latents have none. Attention does not depend on the
order of its keys, so frames are recalled with the rotated tokens of all of them first. With
`memory_pool` windowed latents of frames but the last are averaged 2 x 2 in their grid; global
latents have no neighbours and stay as they are.

Shapes: N objects, F frames, L global latents, n windowed latents.
"""

from samgraph import ops
from samgraph.graph import Dim, Scope, Tensor
from samgraph.models.edgetam.config import EdgeTamConfig
from samgraph.models.edgetam.perceiver import perceiver
from samgraph.models.sam2.memory_attention import rope_attention
from samgraph.models.sam2.memory_bank import frame_positions, pool_frames
from samgraph.models.sam2.memory_design import MemoryDesign, Recalled


def store(at: Scope, config: EdgeTamConfig, memory: Tensor) -> Tensor:
    """The map of the memory encoder, compressed: [N, 64, E, E] -> [N, L + n, 64]."""
    return perceiver(at / "spatial_perceiver", config, memory)


def recall(at: Scope, config: EdgeTamConfig, frames: Tensor, slots: Tensor) -> Recalled:
    """Frames [N, F, L + n, 64] and their slots [N, F], windowed latents of all frames first."""
    L, position = config.latents, config.memory_positions()
    windowed, everywhere = (
        frame_positions(at, config, slots, part) for part in (position[L:], position[:L])
    )
    windowed = pool_frames(config, windowed, config.latent_side)
    positions = ops.concat([windowed, everywhere], axis=1)
    return rotated_first(config, frames), positions, frames.shape[1] * L


def rotated_first(config: EdgeTamConfig, frames: Tensor) -> Tensor:
    """The tokens of frames [N, F, L + n, 64], those that are rotated first: [N, F*(L + n), 64].

    With `memory_pool` there are fewer.
    """
    N, F, _, C = frames.shape
    L, n = config.latents, config.latent_side**2
    windowed = pool_frames(config, frames[:, :, L:].reshape(N, F * n, C), config.latent_side)
    return ops.concat([windowed, frames[:, :, :L].reshape(N, F * L, C)], axis=1)


def attend(
    at: Scope, config: EdgeTamConfig, q: Tensor, k: Tensor, v: Tensor, unrotated: Dim
) -> Tensor:
    """Cross-attention; keys are rotated in the grid of windowed latents."""
    return rope_attention(at, config, q, k, v, unrotated, key_side=config.latent_side)


DESIGN = MemoryDesign(store, recall, attend)
