"""Hashing by pieces: every byte counts, in its place."""

import hashlib

import numpy as np
import pytest

from samgraph.runtime.hashing import PIECE, array_pieces, digest_pieces, pieces


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_digests_are_those_of_the_pieces_in_order(count: int) -> None:
    parts = [memoryview(bytes([i]) * (1000 + i)) for i in range(count)]

    assert digest_pieces(iter(parts)) == b"".join(hashlib.sha256(part).digest() for part in parts)


def test_pieces_are_all_of_the_bytes() -> None:
    data = np.arange(2 * PIECE + 5, dtype=np.uint32).view(np.uint8).data

    found = list(pieces(data))

    assert {len(part) for part in found[:-1]} == {PIECE}
    assert b"".join(found) == data


def test_arrays_are_hashed_whole_and_large_ones_in_place() -> None:
    values = np.random.default_rng(0)
    sizes = (3, PIECE // 8 - 1, PIECE // 8, 2 * PIECE // 8 + 1, 0, 7)
    arrays = [values.standard_normal(size) for size in sizes]

    found = list(array_pieces(arrays))

    assert b"".join(found) == b"".join(array.tobytes() for array in arrays)
    large = [part for part in found if np.shares_memory(np.frombuffer(part, np.uint8), arrays[3])]
    assert sum(map(len, large)) == arrays[3].nbytes


@pytest.mark.parametrize("place", [0, PIECE - 1, PIECE, -1])
def test_a_byte_anywhere_changes_the_digests(place: int) -> None:
    array = np.zeros(2 * PIECE + 9, np.uint8)
    before = digest_pieces(array_pieces([array]))

    array[place] = 1

    assert digest_pieces(array_pieces([array])) != before


def test_arrays_in_another_order_have_other_digests() -> None:
    one, two = np.zeros(8, np.float32), np.ones(8, np.float32)

    assert digest_pieces(array_pieces([one, two])) != digest_pieces(array_pieces([two, one]))
