"""bank_values and bank_keys: what attention reads of a paged memory bank.

    bank_values   pages of frames one behind another, then tokens
    bank_keys     the same, plus positions: of a frame's page, the row of its slot in a table of
                  times, and a grid; of the tokens, positions of their own

pages [P, T, c], stored in any float; frames [N, F], numbers of pages; tokens [N, K, c]; times
[S, c]; slots [N, F]; grid [T, c]; positions [N, K, c]. Both give [N, F*T+K, c].
"""

import numpy as np

from samgraph.graph.dims import Dim
from samgraph.graph.registry import ENGINE_OPS, OPS, expect, register
from samgraph.graph.types import FLOATS, Array, TensorType
from samgraph.ops.rules import need_float


def infer_values(pages: TensorType, frames: TensorType, tokens: TensorType) -> TensorType:
    """All rows of the frames, then the tokens."""
    need_float("bank_values", tokens)
    shapes = f"pages: {pages}, frames: {frames}, tokens: {tokens}"
    ok = pages.rank == tokens.rank == 3 and frames.rank == 2 and pages.dtype in FLOATS
    expect(ok, "bank_values", "inputs do not fit", got=shapes, want="[P, T, c], [N, F], [N, K, c]")
    ok = pages.shape[2] == tokens.shape[2] and frames.shape[0] == tokens.shape[0]
    expect(ok, "bank_values", "tokens do not fit", got=shapes, want="as wide as pages")
    rows: Dim = frames.shape[1] * pages.shape[1] + tokens.shape[1]
    return tokens.reshaped((tokens.shape[0], rows, tokens.shape[2]))


def infer_keys(
    pages: TensorType,
    frames: TensorType,
    tokens: TensorType,
    times: TensorType,
    slots: TensorType,
    grid: TensorType,
    positions: TensorType,
) -> TensorType:
    """The type of the values."""
    y = infer_values(pages, frames, tokens)
    need_float("bank_keys", times, grid, positions)
    shapes = f"times: {times}, slots: {slots}, grid: {grid}, positions: {positions}"
    ok = slots.shape == frames.shape and grid.shape == pages.shape[1:] and positions == tokens
    ok = ok and times.rank == 2 and times.shape[1] == grid.shape[1]
    expect(ok, "bank_keys", "positions do not fit", got=shapes, want="[S, c], [N, F], [T, c]")
    return y


def values(pages: Array, frames: Array, tokens: Array) -> Array:
    """Pages by number, rows of a page that does not exist zero."""
    found = OPS["gather"].reference(pages, frames, axis=0, batch=0).astype(tokens.dtype)
    rows = found.reshape(len(frames), -1, pages.shape[2])
    return np.concatenate([rows, tokens], 1)


def keys(
    pages: Array,
    frames: Array,
    tokens: Array,
    times: Array,
    slots: Array,
    grid: Array,
    positions: Array,
) -> Array:
    """The values and where they belong."""
    tagged = OPS["gather"].reference(times, slots, axis=0, batch=0)[:, :, None] + grid
    embeddings = np.concatenate([tagged.reshape(len(frames), -1, grid.shape[1]), positions], 1)
    result: Array = values(pages, frames, tokens) + embeddings
    return result


for _name, _infer, _reference in (
    ("bank_values", infer_values, values),
    ("bank_keys", infer_keys, keys),
):
    register(_name, infer=_infer, reference=_reference, meaning=__doc__, table=ENGINE_OPS)
