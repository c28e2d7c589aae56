"""Volumes that need no further library: arrays, `.npy` files, windows, axes, what is refused."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from samgraph.errors import ImageError, OptionError, SamgraphError
from samgraph.media.volume.opening import open_scan
from samgraph.media.volume.scan import Scan, directions, usable
from samgraph.media.volume.slices import Slices
from samgraph.media.volume.window import WINDOWS, value_range
from tests.media.volume.drawn import phantom


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i2", ">i2", "<f8", "?"])
def test_a_numpy_file_is_the_array(order: Any, dtype: str, tmp_path: Path) -> None:
    wanted = np.asarray(phantom() // 10, dtype, order=order)
    np.save(tmp_path / "scan.npy", wanted)

    scan = open_scan(tmp_path / "scan.npy")

    assert scan.voxels.dtype == wanted.dtype
    assert np.array_equal(scan.voxels, wanted)
    assert scan.spacing is None
    assert scan.voxel_volume is None


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_are_pictures_of_the_two_other_axes(axis: int) -> None:
    voxels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)

    slices = Slices(open_scan(voxels), axis)

    assert slices.length == voxels.shape[axis]
    for index in range(slices.length):
        wanted = np.take(voxels, index, axis)
        assert np.array_equal(slices.picture(index), wanted)
        assert slices.frame(index).shape == (*wanted.shape, 3)
    assert slices.size_hw == wanted.shape


def test_a_window_makes_its_ends_black_and_white() -> None:
    voxels = np.array([[[-161, -160, 40, 239, 240, 3000]]], np.int16)

    found = Slices(open_scan(voxels), 0, "abdomen").picture(0)

    assert found.tolist() == [[0, 0, 127, 254, 255, 255]]
    assert Slices(open_scan(voxels), 0, (40, 400)).picture(0).tolist() == found.tolist()
    inverted = Scan(voxels, is_inverted=True)
    assert Slices(inverted, 0, "abdomen").picture(0).tolist() == (255 - found).tolist()
    scaled = Scan(voxels + np.int16(1024), intercept=-1024.0)
    assert Slices(scaled, 0, "abdomen").picture(0).tolist() == found.tolist()


def test_without_a_window_the_file_is_asked_then_percentiles_of_what_is_not_zero() -> None:
    voxels = np.zeros((3, 10, 100), np.float32)
    voxels[0] = np.arange(1, 1001).reshape(10, 100)

    assert value_range(None, Scan(voxels, window=(50.0, 100.0))) == (0.0, 100.0)
    assert value_range(None, Scan(voxels)) == pytest.approx((6.0, 995.0), abs=0.1)
    assert value_range(None, Scan(voxels.astype(np.uint8))) == (0.0, 255.0)
    assert value_range("auto", Scan(voxels.astype(np.uint8)))[1] < 255


def test_a_large_volume_is_sampled_for_its_percentiles() -> None:
    voxels = np.broadcast_to(np.arange(1, 501, dtype=np.float32), (300, 300, 500))

    assert value_range(None, Scan(voxels)) == pytest.approx((3.5, 497.5), abs=3)


@given(arrays.arrays(np.float32, (2, 3, 4), elements=st.floats(width=32)), st.sampled_from([0, 2]))
def test_nan_and_infinity_are_black_and_white(voxels: Any, axis: int) -> None:
    slices = Slices(Scan(voxels), axis, (0, 10))

    found = np.stack([slices.picture(index) for index in range(slices.length)], axis=axis)

    assert (found[np.isnan(voxels)] == 0).all()
    assert (found[voxels <= -5] == 0).all()
    assert (found[voxels >= 5] == 255).all()
    with np.errstate(invalid="ignore"):
        order = np.argsort(np.nan_to_num(voxels).ravel(), kind="stable")
    is_number = ~np.isnan(voxels).ravel()[order]
    assert (np.diff(found.ravel()[order][is_number].astype(int)) >= 0).all()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 4)), "is not a volume"),
        (np.zeros((2, 2, 2, 2)), r"array\[..., 0\]; for frames, `model.video`"),
        (np.zeros((2, 0, 2)), "holds no voxels"),
        (np.zeros((2, 2, 2), complex), "one number per voxel"),
        (np.array([[["a"]]]), "one number per voxel"),
        (np.full((2, 2, 2), object()), "one number per voxel"),
        (np.full((2, 2, 2), np.nan), "holds no finite number"),
        (np.full((2, 2, 2), np.inf), "holds no finite number"),
        (b"bytes", "not a volume"),
        (7, "not a volume"),
    ],
)
def test_what_is_no_volume_is_refused(array: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        Slices(open_scan(array), 0)


def test_sizes_in_a_header_are_checked_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "huge.npy"
    header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (90000, 90000, 9000), }"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)

    with pytest.raises(ImageError, match=r"declares 90000 x 90000 x 9000 voxels"):
        open_scan(path)
    with pytest.raises(ImageError, match="is cut short"):
        open_scan(path, max_voxels=1 << 53)
    with pytest.raises(ImageError, match=r"max_voxels=6_144"):
        open_scan(phantom(), max_voxels=100)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("none.npy", None, "does not exist"),
        ("empty.nii", b"", "is empty"),
        ("text.nii.gz", b"hello there, this is text", "is not a volume"),
        ("bad.npy", b"\x93NUMPY\x01\x00\xff\xffgarbage", "damaged"),
        ("packed.npz", b"PK\x03\x04rest of a zip file", "np.save"),
        ("one.dcm", bytes(128) + b"DICM" + bytes(64), "the folder with all slices"),
    ],
)
def test_other_files_are_refused_in_a_sentence(
    tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(ImageError, match=message):
        open_scan(path)


def test_a_pickle_in_a_numpy_file_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "objects.npy"
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)

    with pytest.raises(ImageError, match=r"is not a volume|one number per voxel"):
        open_scan(path)


@pytest.mark.parametrize("library", ["nibabel", "pydicom"])
def test_a_missing_library_is_named_in_a_sentence(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    path = tmp_path
    if library == "nibabel":
        path = tmp_path / "scan.nii"
        path.write_bytes((348).to_bytes(4, "little") + bytes(400))

    with pytest.raises(ImageError, match=f"{library}, which is not installed") as caught:
        open_scan(path)

    assert "samgraph[volume]" in str(caught.value)


@pytest.mark.parametrize(
    "window", ["kidney", (40,), (40, 0), (40, -5), (float("nan"), 5), "40,400", 7, ("a", "b")]
)
def test_what_is_no_window_is_refused(window: Any) -> None:
    with pytest.raises(OptionError, match="window"):
        value_range(window, Scan(phantom()))


@pytest.mark.parametrize("axis", [3, -1, "up", 1.5, "axial", True])
def test_what_is_no_axis_is_refused(axis: Any) -> None:
    with pytest.raises(OptionError, match=r"axis|orientation"):
        Scan(phantom()).axis_of(axis)


@given(
    st.permutations(range(3)),
    st.lists(st.sampled_from([-1.0, 1.0]), min_size=3, max_size=3),
    st.lists(st.floats(0.1, 9), min_size=3, max_size=3),
    st.floats(-0.4, 0.4),
)
def test_a_plane_is_found_in_every_orientation(
    order: list[int], signs: list[float], sizes: list[float], tilt: float
) -> None:
    """Columns are axes of the patient, in some order and direction, tilted a little."""
    affine = np.eye(4)
    turn = np.array([[np.cos(tilt), -np.sin(tilt), 0], [np.sin(tilt), np.cos(tilt), 0], [0, 0, 1]])
    affine[:3, :3] = turn @ np.eye(3)[:, order] * np.array(signs) * np.array(sizes)
    scan = Scan(phantom(), affine=usable(affine))

    assert directions(affine) == tuple(order.index(world) for world in range(3))
    found = [scan.axis_of(plane) for plane in ("sagittal", "coronal", "axial")]
    assert sorted(found) == [0, 1, 2]
    for world, axis in enumerate(found):
        step = affine[:3, 2 - axis]
        assert np.argmax(np.abs(step)) == world
    assert scan.voxel_volume == pytest.approx(np.prod(sizes))
    assert scan.spacing == pytest.approx(tuple(sizes[::-1]))


@pytest.mark.parametrize(
    "affine", [np.zeros((4, 4)), np.full((4, 4), np.nan), np.eye(3), 1e20 * np.eye(4)]
)
def test_an_affine_that_places_nothing_is_not_used(affine: Any) -> None:
    assert usable(affine) is None


def test_every_refusal_is_one_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "scan.npy"
    np.save(path, phantom((2, 3, 4)))
    good = path.read_bytes()
    for index in range(len(good)):
        for value in (0, 255, good[index] ^ 16):
            path.write_bytes(good[:index] + bytes([value]) + good[index + 1 :])
            with suppress(SamgraphError):
                Slices(open_scan(path, max_voxels=1000), 0).picture(0)
    assert set(WINDOWS) >= {"abdomen", "lung", "bone", "brain"}
