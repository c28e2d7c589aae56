"""SHA-256 of much data: of pieces, by several threads, and then of their digests."""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from samgraph.graph.types import Array

PIECE = 4 << 20
_THREADS = 4  # more do not pay: memory is the limit


def pieces(data: memoryview) -> Iterator[memoryview]:
    """Bytes in pieces of one length; the last may be shorter."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


def array_pieces(arrays: Iterable[Array]) -> Iterator[memoryview]:
    """The bytes of arrays: small ones are joined, large ones come in pieces, without a copy.

    Which bytes are in a piece depends on the sizes of the arrays alone.
    """
    joined = bytearray()
    for array in arrays:
        data = np.asarray(array, order="C").reshape(-1).view(np.uint8).data
        if len(data) >= PIECE:
            yield from pieces(data)
            continue
        joined += data
        if len(joined) >= PIECE:
            yield memoryview(joined)
            joined = bytearray()
    yield memoryview(joined)


def digest_pieces(parts: Iterable[memoryview]) -> bytes:
    """The digests of pieces, in order. A piece is hashed while the next ones are made."""
    first: list[memoryview] = []
    rest = iter(parts)
    for part in rest:
        first.append(part)
        if len(first) == 2:
            break
    if len(first) < 2:
        return b"".join(map(_digest, first))
    with ThreadPoolExecutor(_THREADS, "samgraph-hash") as pool:
        found = [pool.submit(_digest, part) for part in first]
        found += [pool.submit(_digest, part) for part in rest]
        return b"".join(each.result() for each in found)


def _digest(part: memoryview) -> bytes:
    return hashlib.sha256(part).digest()
