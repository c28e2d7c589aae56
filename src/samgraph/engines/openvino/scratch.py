"""The memory that a model computes in: how much a graph needs, and giving it back between runs.

OpenVINO keeps the intermediate values of every compiled model for its next run. The models of a
tracked frame run one after another, so theirs would add up: 500 MB for sam2.1-tiny at 1024 pixels,
of which no run needs more than 185. Taking memory anew costs a few hundredths of such a run.
"""

import ctypes
from collections.abc import Callable
from functools import cache

from samgraph.graph.dims import evaluate, product
from samgraph.graph.graph import Graph
from samgraph.graph.types import TensorType, numpy_dtype

# A model with a larger intermediate value gives its memory back after each run.
MOST_KEPT_BYTES = 16 << 20
# Before a model with a larger one takes its memory, the heap is trimmed.
TRIM_BYTES = 64 << 20


def largest_value(graph: Graph) -> int:
    """The bytes of the largest result of a node, for one of whatever a symbol counts."""
    return max((_bytes(node.result.type) for node in graph), default=0)


def _bytes(type: TensorType) -> int:
    count = evaluate(product(type.shape), dict.fromkeys(type.symbols, 1))
    return count * numpy_dtype(type.dtype).itemsize


def trim_heap() -> None:
    """Give freed memory of the heap back to the system, where the C library is glibc.

    It keeps freed blocks of up to 32 MB, which add up to 170 MB while a video is tracked. A few ms.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
    return found
