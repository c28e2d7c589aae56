"""Opening a volume: an array, a NIfTI or `.npy` file, or a folder with a DICOM series."""

import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, SamgraphError
from samgraph.media.volume.dicom import is_dicom, read_series
from samgraph.media.volume.nifti import header_size, read_nifti, scan_of_image, unpacked_head
from samgraph.media.volume.scan import MAX_VOXELS, Scan, check_voxels, filled, scan_of_array
from samgraph.untrusted.arguments import whole
from samgraph.untrusted.files import open_regular
from samgraph.untrusted.text import shown

VolumeSource: TypeAlias = "str | os.PathLike[str] | NDArray[Any] | Any"
_NUMPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
EXPECTED = "`.nii`, `.nii.gz` or `.npy`, by content, or the folder of a DICOM series"


def open_scan(
    source: VolumeSource, *, series: str | None = None, max_voxels: int = MAX_VOXELS
) -> Scan:
    """A volume from an array [Z, Y, X], a path, or an image that nibabel has opened.

    Args:
        source: The array; a `.nii`, `.nii.gz` or `.npy` file; the folder of a DICOM series; an
            image of nibabel; or a `Scan`, which is returned unchanged.
        series: The UID or number of a DICOM series, where its folder holds several.
        max_voxels: The most voxels, checked before they are read.

    Raises:
        ImageError: The volume cannot be read.
    """
    most = whole("max_voxels", max_voxels, 1)
    if isinstance(source, Scan):
        return source
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(os.fspath(source)), series, most)
    if series is not None:
        raise ImageError("only a folder has DICOM series", got=f"series={shown(str(series))!r}")
    if isinstance(source, np.ndarray):
        return scan_of_array(source, most=most)
    if hasattr(source, "dataobj") and hasattr(source, "affine"):
        return scan_of_image(source, most)
    raise ImageError(
        "this is not a volume",
        got=f"a {type(source).__name__}",
        expected="an array [Z, Y, X], a path, or an image of nibabel",
    )


def _open_path(path: Path, series: str | None, most: int) -> Scan:
    name = f"`{shown(os.fspath(path))}`"
    try:
        if path.is_dir():
            return read_series(path, name, series, most)
        with open_regular(path) as file:
            head = file.read(4096)
    except FileNotFoundError as error:
        hint = f"the current folder is `{Path.cwd()}`"
        raise ImageError(f"{name} does not exist", hint=hint) from error
    except SamgraphError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError(f"{name} cannot be opened", got=str(reason).lower()) from error
    if series is not None:
        raise ImageError(f"{name} is a file, and only a folder has DICOM series")
    if not head:
        raise ImageError(f"{name} is empty", got="0 bytes")
    if head.startswith(_NUMPY):
        return _read_numpy(path, name, most)
    if header_size(unpacked_head(head)):
        return read_nifti(path, name, most)
    raise ImageError(f"{name} is not a volume", expected=EXPECTED, hint=_hint(path, head))


def _read_numpy(path: Path, name: str, most: int) -> Scan:
    """The array in a `.npy` file. It is not mapped: a file that shrinks would end the process."""
    try:
        with open_regular(path) as file:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise ImageError(f"{name} is of a newer `.npy` version", got=str(version))
            shape, is_fortran, dtype = _HEADERS[version](file)
            check_voxels(shape, dtype, name, most)
            count = int(np.prod(shape, dtype=np.int64))
            if file.tell() + count * dtype.itemsize > path.stat().st_size:
                raise ImageError(f"{name} is cut short", got=f"{path.stat().st_size:,} bytes")
            voxels = filled(file, np.empty(count, dtype), name)
    except SamgraphError:
        raise
    except Exception as error:  # of numpy, whose reader of headers raises what it likes
        reason = shown(str(error).partition("\n")[0]) or type(error).__name__
        raise ImageError(f"{name} is damaged or cannot be read", got=reason.lower()) from error
    return Scan(voxels.reshape(shape, order="F" if is_fortran else "C"), name)


def _hint(path: Path, head: bytes) -> str | None:
    """What to do with a file that is something else."""
    if is_dicom(path):
        return "give the folder with all slices of the series"
    if head.startswith(_ZIP):
        return "save the array itself with np.save, or pass it to `model.volume`"
    return "for frames and clips there is `model.video`, and `samgraph track`"
