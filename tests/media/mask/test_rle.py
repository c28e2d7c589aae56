import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco

from samgraph.errors import ImageError
from samgraph.media.mask import rle
from tests.media.shapes import Mask, discs, masks, picture


@settings(deadline=None)
@given(masks())
def test_a_mask_is_encoded_as_pycocotools_does(mask: Mask) -> None:
    theirs = coco.encode(np.asfortranarray(mask))

    ours = rle.encode(mask)

    assert ours == theirs
    assert rle.area(ours) == coco.area(theirs)
    assert list(rle.to_bbox(ours)) == coco.toBbox(theirs).tolist()


@settings(deadline=None)
@given(masks())
def test_decoding_gives_the_mask_back_from_every_form(mask: Mask) -> None:
    encoded = rle.encode(mask)

    assert np.array_equal(rle.decode(encoded), mask)
    assert np.array_equal(rle.decode(rle.to_json(encoded)), mask)
    assert np.array_equal(rle.decode(rle.uncompressed(encoded)), mask)
    assert rle.from_counts(rle.counts_of(encoded), mask.shape) == encoded


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**31), max_size=60))
def test_text_and_runs_are_the_same_thing(counts: list[int]) -> None:
    assert rle.string_to_counts(rle.counts_to_string(counts)).tolist() == counts


def test_runs_go_down_the_columns_and_begin_with_background() -> None:
    mask = picture("##.", "#..")

    assert rle.uncompressed(rle.encode(mask)) == {"size": [2, 3], "counts": [0, 3, 3]}
    assert rle.to_json(rle.encode(mask)) == {"size": [2, 3], "counts": "033"}


@pytest.mark.parametrize("size", [301, 304])
def test_large_masks_agree_with_pycocotools(size: int) -> None:
    stack = np.stack([discs(seed, size=size) for seed in range(70)])

    ours = rle.encode_many(stack)

    assert ours == [coco.encode(np.asfortranarray(mask)) for mask in stack]
    assert all(np.array_equal(rle.decode(one), mask) for one, mask in zip(ours, stack, strict=True))


def test_masks_may_lie_in_memory_as_they_like() -> None:
    mask = discs(3, size=64)

    for view in (mask.T, mask[::-1], mask[:, ::2], mask[4:, 8:40], np.asfortranarray(mask)):
        assert rle.encode(view) == coco.encode(np.asfortranarray(view))


def test_no_masks_have_no_encodings() -> None:
    assert rle.encode_many(np.zeros((0, 4, 4), np.bool_)) == []


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"size": [4, 4]},
        {"counts": [16]},
        {"size": [4], "counts": [4]},
        {"size": [0, 4], "counts": [0]},
        {"size": [-4, -4], "counts": [16]},
        {"size": ["4", "4"], "counts": [16]},
        {"size": [2.0, 2.0], "counts": [4]},
        {"size": [1 << 20, 1 << 20], "counts": [1 << 40]},
        {"size": [4, 4], "counts": [15]},
        {"size": [4, 4], "counts": [20, -4]},
        {"size": [4, 4], "counts": [1.5, 14.5]},
        {"size": [4, 4], "counts": [[16]]},
        {"size": [4, 4], "counts": [[1], [1, 2]]},
        {"size": [4, 4], "counts": [10**30]},
        {"size": [4, 4], "counts": [2**63, 2**63]},
        {"size": [4, 4], "counts": "@0;"},
        {"size": [4, 4], "counts": "Q"},
        {"size": [4, 4], "counts": b"\xff\xff"},
        {"size": [4, 4], "counts": "oooooooo0"},
        {"size": [4, 4], "counts": "\N{SNOWMAN}"},
        {"size": [4, 4], "counts": None},
        {"size": [4, 4], "counts": ""},
    ],
)
def test_a_damaged_encoding_is_one_clear_error(damaged: dict[str, object]) -> None:
    with pytest.raises(ImageError):
        rle.decode(damaged)


@given(st.binary(max_size=40), st.integers(1, 50), st.integers(1, 50))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_mask_or_an_error(text: bytes, height: int, width: int) -> None:
    try:
        mask = rle.decode({"size": [height, width], "counts": text})
    except ImageError:
        return
    assert mask.shape == (height, width)


def test_only_bool_masks_are_encoded() -> None:
    with pytest.raises(ImageError) as caught:
        rle.encode(np.zeros((2, 2)))  # type: ignore[arg-type]  # that is what is tested

    assert str(caught.value) == (
        "only a mask can be run-length encoded\n  got:      float64[2, 2]\n"
        "  expected: bool[H, W]\n  hint: threshold it first: `mask > 0`"
    )


@pytest.mark.parametrize("at_once", [1, 3, 1 << 22])
def test_a_window_is_encoded_as_the_whole_mask_would_be(
    at_once: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(rle, "PIXELS_AT_ONCE", at_once)
    for _ in range(300):
        height, width = (int(n) for n in rng.integers(1, 9, 2))
        top, left = int(rng.integers(0, height + 1)), int(rng.integers(0, width + 1))
        down, right = int(rng.integers(top, height + 1)), int(rng.integers(left, width + 1))
        whole = np.zeros((height, width), np.bool_)
        window = rng.random((down - top, right - left)) < rng.choice([0.0, 0.3, 0.9, 1.1])
        whole[top:down, left:right] = window

        transposed = np.pad(window, ((0, 1), (0, 0))).T.astype(np.uint8)

        assert rle.encode_at(window, top, left, (height, width)) == rle.encode(whole)
        assert rle.encode_columns(transposed, top, left, (height, width)) == rle.encode(whole)


@pytest.mark.parametrize("text", ["\ud800", "é", "0\udcff", "画"])
def test_a_compressed_text_of_other_characters_is_damaged(text: str) -> None:
    with pytest.raises(ImageError, match="damaged"):
        rle.string_to_counts(text)
