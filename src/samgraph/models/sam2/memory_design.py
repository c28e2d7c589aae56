"""How a family stores memory and attends to it: what differs between SAM 2 and its sister models.

Shapes: N objects, F frames, T memory tokens per frame, E grid.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from samgraph.graph import Dim, Scope, Tensor
from samgraph.models.sam2.layers import to_tokens
from samgraph.models.sam2.memory_attention import Attend, rope_attention
from samgraph.models.sam2.memory_bank import frame_positions, pool_frames
from samgraph.models.sam2.tracker_config import TrackerConfig

# Tokens of remembered frames and their positions, both [N, F*T, 64], unrotated tokens last.
Recalled = tuple[Tensor, Tensor, Dim]


def store_map(at: Scope, config: TrackerConfig, memory: Tensor) -> Tensor:
    """The map as tokens, row by row: [N, 64, E, E] -> [N, E*E, 64]."""
    return to_tokens(memory)


def recall_maps(at: Scope, config: TrackerConfig, frames: Tensor, slots: Tensor) -> Recalled:
    """Frame after frame, all tokens rotated: frames [N, F, E*E, 64], slots [N, F]."""
    N, F, T, C = frames.shape
    tokens = pool_frames(config, frames.reshape(N, F * T, C))
    return tokens, pool_frames(config, frame_positions(at, config, slots)), 0


@dataclass(frozen=True, slots=True)
class MemoryDesign:
    """The memory of a family; the defaults are SAM 2's.

    Args:
        store: The memory encoder's map [N, 64, E, E] -> the tokens of a frame, [N, T, 64].
        recall: Frames [N, F, T, 64] and their slots [N, F] -> tokens, positions, and how many of
            the tokens are unrotated; those are the last.
        attend: The cross-attention.
    """

    store: Callable[[Scope, Any, Tensor], Tensor] = store_map
    recall: Callable[[Scope, Any, Tensor, Tensor], Recalled] = recall_maps
    attend: Attend = rope_attention


SAM2_MEMORY = MemoryDesign()
