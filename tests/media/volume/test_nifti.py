"""NIfTI files: what is read, what is kept, what is refused. Files are made with nibabel."""

import gzip
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samgraph.errors import ImageError, SamgraphError
from samgraph.media.volume.nifti import nifti_bytes
from samgraph.media.volume.opening import open_scan
from samgraph.media.volume.scan import Scan
from samgraph.media.volume.window import values
from tests.media.volume.drawn import phantom

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed: samgraph[volume]")
AFFINE = np.array([[-0.7, 0, 0, 90], [0, 0.8, 0, -126], [0, 0, 3.0, -72], [0, 0, 0, 1]])
CODES = [f"{a}{b}{c}" for a, b, c in (("L", "A", "S"), ("R", "P", "I"), ("P", "S", "R"))]


def written(path: Path, voxels: Any, affine: Any = AFFINE, kind: Any = None) -> Path:
    """A file of voxels [Z, Y, X]."""
    nibabel.save((kind or nibabel.Nifti1Image)(voxels.T, affine), path)
    return path


@pytest.mark.parametrize("suffix", ["nii", "nii.gz"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_file_gives_its_voxels_last_index_first(
    suffix: str, version: int, tmp_path: Path
) -> None:
    kind = getattr(nibabel, f"Nifti{version}Image")

    scan = open_scan(written(tmp_path / f"scan.{suffix}", phantom(), kind=kind))

    assert scan.voxels.dtype == np.int16
    assert np.array_equal(scan.voxels, phantom())
    assert scan.affine is not None
    assert np.allclose(scan.affine, AFFINE)
    assert scan.spacing == pytest.approx((3.0, 0.8, 0.7))
    assert [scan.axis_of(name) for name in ("axial", "coronal", "sagittal")] == [0, 1, 2]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64])
def test_every_type_of_voxels(dtype: Any, tmp_path: Path) -> None:
    voxels = np.abs(phantom()).clip(0, 200).astype(dtype)

    scan = open_scan(written(tmp_path / "scan.nii", voxels))

    assert np.array_equal(scan.voxels, voxels)


def test_units_and_byte_order_of_a_file(tmp_path: Path) -> None:
    header = nibabel.Nifti1Header(endianness=">")
    header.set_data_dtype(np.int16)
    header.set_data_shape((32, 24, 8))
    header.set_slope_inter(2, -1024)
    header["vox_offset"], header["magic"] = 352, b"n+1"
    path = tmp_path / "scan.nii"
    path.write_bytes(header.binaryblock + bytes(4) + phantom().astype(">i2").tobytes())

    scan = open_scan(path)

    assert np.array_equal(values(scan.voxels, scan), phantom() * 2.0 - 1024)


def test_a_single_fourth_index_is_dropped_and_more_are_refused(tmp_path: Path) -> None:
    one = nibabel.Nifti1Image(phantom().T[..., None], AFFINE)
    two = nibabel.Nifti1Image(np.stack([phantom().T] * 2, axis=-1), AFFINE)
    nibabel.save(one, tmp_path / "one.nii")
    nibabel.save(two, tmp_path / "two.nii")

    assert open_scan(tmp_path / "one.nii").voxels.shape == phantom().shape
    assert open_scan(one).voxels.shape == phantom().shape
    with pytest.raises(ImageError, match="not a volume"):
        open_scan(tmp_path / "two.nii")
    with pytest.raises(ImageError, match="not a volume"):
        open_scan(two)


@given(
    shape=st.tuples(*[st.integers(1, 5)] * 3),
    order=st.permutations(range(3)),
    signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=3, max_size=3),
    sizes=st.lists(st.floats(0.25, 8), min_size=3, max_size=3),
    turn=st.floats(-0.5, 0.5),
    origin=st.lists(st.floats(-500, 500), min_size=3, max_size=3),
    codes=st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from([0, 1, 4])),
    is_packed=st.booleans(),
)
def test_a_mask_lies_where_the_scan_lies(
    tmp_path_factory: pytest.TempPathFactory, shape: Any, order: list[int], signs: list[float],
    sizes: list[float], turn: float, origin: list[float], codes: tuple[int, int], is_packed: bool,
) -> None:  # fmt: skip
    """Affine, orientation codes, both transforms and units are those of the scan, in any frame."""
    affine = np.eye(4)
    around = np.array(
        [[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]]
    )
    affine[:3, :3] = around @ np.eye(3)[:, order] * np.array(signs) * np.array(sizes)
    affine[:3, 3] = origin
    voxels = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    image = nibabel.Nifti1Image(voxels.T, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.set_qform(affine, codes[0])
    image.set_sform(affine, codes[1])
    path = tmp_path_factory.mktemp("nifti") / "scan.nii"
    nibabel.save(image, path)
    scan = open_scan(path)
    labels = (voxels % 3).astype(np.uint8)

    again = path.with_name("mask.nii.gz" if is_packed else "mask.nii")
    again.write_bytes(nifti_bytes(labels, scan, is_packed=is_packed))

    before, after = nibabel.load(path), nibabel.load(again)
    assert np.array_equal(np.asarray(after.dataobj), labels.T)
    assert after.get_data_dtype() == np.uint8
    assert np.array_equal(before.affine, after.affine)
    assert nibabel.aff2axcodes(before.affine) == nibabel.aff2axcodes(after.affine)
    for name in ("qform_code", "sform_code", "xyzt_units", "pixdim"):
        assert np.array_equal(before.header[name], after.header[name]), name
    assert np.array_equal(open_scan(again).voxels, labels)


def test_reoriented_files_hold_the_same_organ(tmp_path: Path) -> None:
    """The same body in three orientations: a plane of the patient shows the same slices."""
    image = nibabel.Nifti1Image(phantom((6, 8, 10)).T, np.diag([-1.0, -1, 1, 1]))
    organs = []
    for codes in CODES:
        target = nibabel.orientations.axcodes2ornt(codes)
        start = nibabel.orientations.io_orientation(image.affine)
        turned = image.as_reoriented(nibabel.orientations.ornt_transform(start, target))
        nibabel.save(turned, tmp_path / f"{codes}.nii")
        scan = open_scan(tmp_path / f"{codes}.nii")
        axis = scan.axis_of("axial")
        sums = scan.voxels.astype(int).sum(axis=tuple(a for a in range(3) if a != axis))
        is_up = scan.affine is not None and scan.affine[2, 2 - axis] > 0
        organs.append(tuple(sums if is_up else sums[::-1]))

    assert len(set(organs)) == 1
    assert len(organs[0]) == 6


@pytest.mark.parametrize("affine", [AFFINE, None])
def test_a_scan_without_a_header_gets_one_with_its_affine(affine: Any, tmp_path: Path) -> None:
    labels = (phantom() > 0).astype(np.uint16) * 300
    path = tmp_path / "mask.nii"

    path.write_bytes(nifti_bytes(labels, Scan(phantom(), affine=affine), is_packed=False))

    after = nibabel.load(path)
    assert np.allclose(after.affine, np.eye(4) if affine is None else affine)
    assert np.allclose(after.header.get_zooms(), (1, 1, 1) if affine is None else (0.7, 0.8, 3))
    assert np.array_equal(np.asarray(after.dataobj), labels.T)


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (40, "<8h", (3, 32767, 32767, 32767, 1, 1, 1, 1), "declares"),
        (40, "<8h", (3, 1000, 1000, 900, 1, 1, 1, 1), "cut short"),
        (40, "<8h", (3, -5, 24, 8, 1, 1, 1, 1), "holds no voxels|damaged"),
        (40, "<8h", (2, 32, 24, 1, 1, 1, 1, 1), "not a volume"),
        (40, "<8h", (99, 32, 24, 8, 1, 1, 1, 1), "damaged|not a volume|cut short"),
        (70, "<h", (128,), "one number per voxel"),
        (70, "<h", (32,), "one number per voxel"),
        (70, "<h", (4096,), "damaged"),
        (108, "<f", (float("nan"),), "damaged"),
        (108, "<f", (1e30,), "damaged"),
        (108, "<f", (-8.0,), "damaged"),
        (344, "<4s", (b"ni1\0",), "one half of a pair"),
        (344, "<4s", (b"nope",), "not a NIfTI file"),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_header_that_lies_is_refused(
    offset: int, form: str, value: Any, message: str, is_packed: bool, tmp_path: Path
) -> None:
    data = bytearray(written(tmp_path / "scan.nii", phantom()).read_bytes())
    struct.pack_into(form, data, offset, *value)
    path = tmp_path / "bad.nii"
    path.write_bytes(gzip.compress(bytes(data)) if is_packed else bytes(data))

    with pytest.raises(ImageError, match=message):
        open_scan(path)


def test_a_file_that_is_cut_short_says_so(tmp_path: Path) -> None:
    data = written(tmp_path / "scan.nii.gz", phantom()).read_bytes()
    (tmp_path / "cut.nii.gz").write_bytes(data[:-40])
    plain = gzip.decompress(data)
    (tmp_path / "short.nii.gz").write_bytes(gzip.compress(plain[:-100]))

    for name in ("cut", "short"):
        with pytest.raises(ImageError, match=r"damaged|cut short"):
            open_scan(tmp_path / f"{name}.nii.gz")


def test_orientation_that_is_nonsense_is_kept_and_not_used(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "scan.nii", phantom()).read_bytes())
    struct.pack_into("<12f", data, 280, *[float("nan")] * 12)
    (tmp_path / "odd.nii").write_bytes(bytes(data))

    scan = open_scan(tmp_path / "odd.nii")

    assert scan.affine is None
    assert nifti_bytes(np.ones(phantom().shape, np.uint8), scan, is_packed=False)


def test_every_changed_byte_of_a_header_is_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    good = written(tmp_path / "scan.nii", phantom((2, 3, 4))).read_bytes()
    path = tmp_path / "changed.nii"
    for index in range(352):
        for value in (0, 0x7F, 0xFF):
            path.write_bytes(good[:index] + bytes([value]) + good[index + 1 :])
            with suppress(SamgraphError):
                scan = open_scan(path, max_voxels=10_000)
                values(scan.voxels, scan)
                nifti_bytes(np.zeros(scan.voxels.shape, np.uint8), scan, is_packed=False)
