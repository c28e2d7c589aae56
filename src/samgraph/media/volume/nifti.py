"""NIfTI files (`.nii`, `.nii.gz`), with nibabel, which knows what a header means.

Only the header is given to nibabel, and only after its size is known; extensions are not read.
Sizes that a header declares are compared with the file before memory is allocated.
"""

import gzip
import zlib
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, SamgraphError
from samgraph.media.volume.scan import MAX_VOXELS, Scan, check_voxels, filled, usable
from samgraph.untrusted.text import shown

GZIP = b"\x1f\x8b"
_HEADER_BYTES = {348: "Nifti1Header", 540: "Nifti2Header"}
_MAGIC = {348: (344, b"n+1\0"), 540: (4, b"n+2\0")}
_PAIR = (b"ni1\0", b"ni2\0")
_BEST_COMPRESSION = 1040  # no gzip file unpacks to more than this many times its size
_MOST_BEFORE_VOXELS = 1 << 28  # bytes of header and extensions


def load_nibabel() -> ModuleType:
    """The module nibabel; raises an error that says how to install it."""
    try:
        import nibabel
    except ImportError as error:
        raise ImageError(
            "NIfTI files are read and written with nibabel, which is not installed",
            hint="pip install samgraph[volume]; `.npy` files work without it",
        ) from error
    module: ModuleType = nibabel
    return module


def header_size(head: bytes) -> int | None:
    """348 or 540 for the first bytes of a NIfTI file, None for any other."""
    return next(
        (n for n in _HEADER_BYTES if n in _first_numbers(head) and len(head) >= min(n, 348)), None
    )


def _first_numbers(head: bytes) -> tuple[int, int]:
    return int.from_bytes(head[:4], "little"), int.from_bytes(head[:4], "big")


def unpacked_head(head: bytes) -> bytes:
    """The first bytes of a file that may be compressed."""
    if not head.startswith(GZIP):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, 540)
    except zlib.error:
        return b""


def read_nifti(path: Path, name: str, most: int = MAX_VOXELS) -> Scan:
    """The volume in a NIfTI file.

    Raises:
        ImageError: It is damaged, no volume, or too large; or nibabel is not installed.
    """
    nibabel = load_nibabel()
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == GZIP
            raw.seek(0)
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if is_packed else raw
            size = path.stat().st_size * (_BEST_COMPRESSION if is_packed else 1)
            return _read(nibabel, file, size, name, most)
    except SamgraphError:
        raise
    except MemoryError as error:
        raise ImageError(f"{name} needs more memory than there is") from error
    except Exception as error:  # of nibabel, gzip or the disk
        reason = shown(str(error)) or type(error).__name__
        raise ImageError(f"{name} is damaged or cannot be read", got=reason.lower()) from error


def _read(nibabel: ModuleType, file: IO[bytes], most_bytes: int, name: str, most: int) -> Scan:
    """The volume in an open file of at most so many bytes, unpacked."""
    head = file.read(540)
    size = header_size(head)
    if size is None:
        raise ImageError(f"{name} is not a NIfTI file", expected="`.nii` or `.nii.gz`, by content")
    offset, magic = _MAGIC[size]
    if head[offset : offset + 4] in _PAIR:
        raise ImageError(
            f"{name} is one half of a pair of files",
            got="a header without its voxels, or voxels with a header elsewhere",
            expected="one `.nii` or `.nii.gz` file",
        )
    if head[offset : offset + 4] != magic:
        raise ImageError(f"{name} is not a NIfTI file", got="no NIfTI magic in its header")
    header = getattr(nibabel, _HEADER_BYTES[size])(head[:size])
    shape = tuple(int(length) for length in header.get_data_shape())
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    dtype = header.get_data_dtype()
    check_voxels(shape, dtype, name, most)
    start = float(header["vox_offset"])
    if not size <= start <= _MOST_BEFORE_VOXELS:
        raise ImageError(f"{name} is damaged", got=f"voxels that begin at byte {start:g}")
    count = int(np.prod(shape))
    if int(start) + count * dtype.itemsize > most_bytes:
        got = f"a file too short for {' x '.join(map(str, shape))} voxels of {dtype}"
        raise ImageError(f"{name} is cut short", got=got)
    file.seek(int(start))
    voxels = filled(file, np.empty(count, dtype), name)
    slope, intercept = header.get_slope_inter()
    return Scan(
        voxels.reshape(shape[::-1]),  # the first index of a NIfTI file is the fastest
        name,
        _affine(header),
        1.0 if slope is None else float(slope),
        0.0 if intercept is None else float(intercept),
        header=header,
    )


def _affine(header: Any) -> NDArray[np.float64] | None:
    """Where the voxels are, or None where the header does not say it, or says nonsense."""
    with np.errstate(all="ignore"):
        try:
            return usable(header.get_best_affine())
        except Exception:  # a quaternion that is none; the header is kept as it is
            return None


def scan_of_image(image: Any, most: int = MAX_VOXELS) -> Scan:
    """A volume that nibabel has opened.

    Raises:
        ImageError: It is no volume, or too large.
    """
    name = "the NIfTI image"
    shape = tuple(image.shape)
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    check_voxels(shape, image.get_data_dtype(), name, most)
    voxels = np.asanyarray(image.dataobj).reshape(shape).T
    nibabel = load_nibabel()
    known = isinstance(image.header, (nibabel.Nifti1Header, nibabel.Nifti2Header))
    affine = None if image.affine is None else usable(image.affine)
    return Scan(voxels, name, affine, header=image.header.copy() if known else None)


def nifti_bytes(labels: NDArray[Any], scan: Scan, *, is_packed: bool) -> bytes:
    """Labels [Z, Y, X] as a NIfTI file, with the header of the volume where it has one.

    The header's orientation, units and sizes stay as they are; a volume without a header gets one
    with its affine.
    """
    nibabel = load_nibabel()
    shape = labels.shape[::-1]
    if scan.header is not None:
        header = scan.header.as_byteswapped("<")
    else:
        header = nibabel.Nifti1Header() if max(shape) < 1 << 15 else nibabel.Nifti2Header()
    header.set_data_dtype(labels.dtype.newbyteorder("<"))
    header.set_data_shape(shape)
    if scan.header is None:
        affine = np.eye(4) if scan.affine is None else scan.affine
        header.set_sform(affine, 1)
        header.set_qform(affine, 1, strip_shears=True)
        header.set_xyzt_units("mm")
    header.set_slope_inter(1, 0)
    header["cal_min"], header["cal_max"] = 0, 0
    header["magic"] = b"n+2" if header.sizeof_hdr == 540 else b"n+1"
    header["vox_offset"] = header.sizeof_hdr + 4
    data = header.binaryblock + bytes(4) + labels.astype(labels.dtype.newbyteorder("<")).tobytes()
    return gzip.compress(data, 6, mtime=0) if is_packed else data
