"""DICOM series: order, units and place of slices; what is refused. Files are made with pydicom."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samgraph.errors import ImageError, SamgraphError, SamgraphWarning
from samgraph.media.volume.opening import open_scan
from samgraph.media.volume.slices import Slices
from samgraph.media.volume.window import value_range, values
from tests.media.volume.drawn import phantom, write_series

pydicom = pytest.importorskip("pydicom", reason="pydicom is not installed: samgraph[volume]")
VOXELS = phantom((5, 6, 8))


def test_a_series_is_a_volume_in_the_order_of_positions(tmp_path: Path) -> None:
    write_series(tmp_path, VOXELS)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").write_bytes(b"x")

    scan = open_scan(tmp_path)

    assert scan.voxels.dtype == np.int16
    assert np.array_equal(values(scan.voxels, scan), VOXELS)
    assert scan.spacing == pytest.approx((2.5, 0.5, 0.75))
    assert value_range(None, scan) == (-160.0, 240.0)  # the window of the file
    # DICOM counts to the left and to the back, NIfTI to the right and to the front.
    wanted = np.array([[-0.75, 0, 0, -10], [0, -0.5, 0, 20], [0, 0, 2.5, 100], [0, 0, 0, 1]])
    assert scan.affine is not None
    assert np.allclose(scan.affine, wanted)


@given(
    st.permutations(range(3)),
    st.lists(st.sampled_from([-1.0, 1.0]), min_size=2, max_size=2),
    st.floats(-0.4, 0.4),
    st.sampled_from([1, -1]),
)
def test_a_voxel_is_where_its_slice_says(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], signs: list[float], turn: float,
    step: int,
) -> None:  # fmt: skip
    """The position of a voxel by the affine is the one by the rules of DICOM, in any plane."""
    around = np.array(
        [[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]]
    )
    right, down = (around @ np.eye(3)[:, order[i]] * signs[i] for i in range(2))
    through = np.cross(right, down) * step * 2.0
    start = np.array([10.0, -20, 30])
    folder = tmp_path_factory.mktemp("series")
    write_series(
        folder,
        VOXELS[:3],
        ImageOrientationPatient=[float(f"{n:.12g}") for n in (*right, *down)],
        ImagePositionPatient=lambda index: [float(f"{n:.9g}") for n in start + index * through],
    )

    scan = open_scan(folder)

    assert scan.affine is not None
    for z, y, x in ((0, 0, 0), (2, 5, 7), (1, 3, 2)):
        index = z if step > 0 else 2 - z  # where the slice of number `index` has come to
        left_back_up = start + index * through + x * 0.75 * right + y * 0.5 * down
        found = scan.affine @ [x, y, z, 1]
        assert np.allclose(found[:3], left_back_up * [-1, -1, 1], atol=1e-4)
        assert values(scan.voxels, scan)[z, y, x] == VOXELS[index, y, x]


def test_units_of_each_slice_and_dark_highs(tmp_path: Path) -> None:
    write_series(
        tmp_path,
        VOXELS,
        RescaleSlope=lambda index: 1 + index,
        PhotometricInterpretation="MONOCHROME1",
        WindowCenter=None,
    )

    scan = open_scan(tmp_path)

    stored = VOXELS.astype(int) + 1024
    wanted = stored * np.arange(1, 6).reshape(5, 1, 1) - 1024
    assert np.array_equal(values(scan.voxels, scan), wanted)
    assert scan.is_inverted
    assert scan.window is None
    picture = Slices(scan, 0, (0, 100)).picture(0)
    assert picture[wanted[0] < -100].min() == 255


def test_one_of_several_series_is_chosen_by_uid_or_number(tmp_path: Path) -> None:
    write_series(tmp_path, VOXELS)
    for path in write_series(tmp_path / "b", VOXELS[:2], SeriesInstanceUID="9.9", SeriesNumber=7):
        path.rename(tmp_path / f"b{path.name}")
    (tmp_path / "b").rmdir()

    with pytest.raises(ImageError, match="holds 2 series") as caught:
        open_scan(tmp_path)

    assert "9.9 (7: CT abdomen, 2 slices)" in str(caught.value)
    assert open_scan(tmp_path, series="9.9").voxels.shape[0] == 2
    assert open_scan(tmp_path, series="4").voxels.shape[0] == 5
    with pytest.raises(ImageError, match="holds no series `8`"):
        open_scan(tmp_path, series="8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Rows": lambda index: 6 - (index == 2)}, "different sizes"),
        ({"PixelSpacing": lambda index: [1 + (index == 2), 1]}, "do not belong together"),
        (
            {"ImageOrientationPatient": lambda i: [0, 1, 0, 0, 0, 1] if i else [1, 0, 0, 0, 1, 0]},
            "do not belong together",
        ),
        ({"ImagePositionPatient": lambda index: [0, 0, index // 2]}, "at the same position"),
        ({"NumberOfFrames": 3}, "holds 3 frames"),
        ({"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB"}, "is in colour"),
        ({"PixelData": b"\x00\x01"}, "is damaged or cannot be read"),
        ({"PixelData": None}, "holds no pixels|damaged"),
        ({"Rows": 65535, "Columns": 65535}, "declares 5 x 65535 x 65535 voxels"),
        ({"Rows": 0}, "holds no voxels"),
        ({"BitsAllocated": 13}, "is damaged or cannot be read"),
    ],
)
def test_slices_that_make_no_volume_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_series(tmp_path, VOXELS, **changes)

    with pytest.raises(ImageError, match=message):
        open_scan(tmp_path)


def test_a_gap_is_a_warning(tmp_path: Path) -> None:
    write_series(tmp_path, VOXELS)[2].unlink()

    with pytest.warns(SamgraphWarning, match=r"not evenly spaced \(2.5 to 5 mm\)"):
        scan = open_scan(tmp_path)

    assert scan.voxels.shape[0] == 4


def test_without_positions_the_number_of_a_slice_counts(tmp_path: Path) -> None:
    write_series(tmp_path, VOXELS, ImagePositionPatient=None, ImageOrientationPatient=None)

    scan = open_scan(tmp_path)

    assert scan.affine is None
    assert np.array_equal(values(scan.voxels, scan), VOXELS[::-1])  # numbered from the last


@pytest.mark.parametrize(
    ("syntax", "message"),
    [
        ("1.2.840.10008.1.2.4.70", "compressed in a way that is not installed"),
        ("1.2.840.10008.1.2.4.100", "compressed in a way that is not installed|damaged"),
        ("1.2.840.10008.1.2.1.99", "deflated as a whole"),
        ("1.2.3.4.5.6", "damaged|compressed"),
    ],
)
def test_a_compression_that_is_not_installed_is_named(
    syntax: str, message: str, tmp_path: Path
) -> None:
    for path in write_series(tmp_path, VOXELS):
        data = path.read_bytes()
        old, new = b"1.2.840.10008.1.2.1\0", syntax.encode()
        new += b"\0" * (len(new) % 2)
        at = data.index(old)
        length = int.from_bytes(data[140:144], "little") + len(new) - len(old)
        head = data[:140] + length.to_bytes(4, "little") + data[144 : at - 2]
        path.write_bytes(head + len(new).to_bytes(2, "little") + new + data[at + len(old) :])

    with pytest.raises(ImageError, match=message):
        open_scan(tmp_path)


def test_run_lengths_are_read(tmp_path: Path) -> None:
    for path in write_series(tmp_path, VOXELS):
        data = pydicom.dcmread(path)
        data.compress(pydicom.uid.RLELossless)
        data.save_as(path)

    scan = open_scan(tmp_path)

    assert np.array_equal(values(scan.voxels, scan), VOXELS)


def test_a_folder_without_images_says_so(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="holds no DICOM images"):
        open_scan(tmp_path)
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(ImageError, match="1 other files"):
        open_scan(tmp_path)


def test_damaged_files_are_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    path = write_series(tmp_path, VOXELS[:1])[0]
    good = path.read_bytes()
    for index in range(128, len(good) - VOXELS[0].nbytes, 2):
        path.write_bytes(good[:index] + bytes([good[index] ^ 0xFF]) + good[index + 1 :])
        with suppress(SamgraphError):
            Slices(open_scan(tmp_path, max_voxels=100_000), 0).picture(0)
    for length in range(132, len(good), 24):
        path.write_bytes(good[:length])
        with pytest.raises(SamgraphError):
            open_scan(tmp_path)
