"""A DICOM series: a folder of slices, with pydicom.

Headers are read first, without pixels: what belongs together, in which order, and how large it is.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, SamgraphError, SamgraphWarning
from samgraph.media.volume.scan import MAX_VOXELS, Scan, check_voxels, usable
from samgraph.untrusted.text import shown

MOST_FILES, MOST_BYTES = 20_000, 1 << 30
_DEFLATED = "1.2.840.10008.1.2.1.99"  # unpacked by pydicom without a limit
_SAME_ORIENTATION = 1e-3
_EVEN = 0.1  # of the distance between slices


@dataclass(frozen=True, slots=True)
class Slice:
    """One file of a series: where it is and what its pixels are, read from its header."""

    path: Path
    series: str
    about: str
    number: int
    rows: int
    columns: int
    bits: tuple[int, int]
    position: tuple[float, ...] | None
    orientation: tuple[float, ...] | None
    spacing: tuple[float, ...]
    rescale: tuple[float, float]
    window: tuple[float, float] | None
    is_inverted: bool

    @property
    def height(self) -> float:
        """Millimetres along the normal of the slice; its number where that is unknown."""
        if self.position is None or self.orientation is None:
            return float(self.number)
        normal = np.cross(self.orientation[:3], self.orientation[3:])
        return float(normal @ np.asarray(self.position))


def load_pydicom() -> ModuleType:
    """The module pydicom; raises an error that says how to install it."""
    try:
        import pydicom
    except ImportError as error:
        raise ImageError(
            "DICOM series are read with pydicom, which is not installed",
            hint="pip install samgraph[volume]; `.npy` files work without it",
        ) from error
    module: ModuleType = pydicom
    return module


def read_series(folder: Path, name: str, series: str | None = None, most: int = MAX_VOXELS) -> Scan:
    """The series in a folder, slices in the order of their positions.

    Args:
        folder: Where the files are; other files are ignored, folders in it are not entered.
        name: What it is called in messages.
        series: The UID or the number of the series, where the folder holds several.
        most: The most voxels.

    Raises:
        ImageError: There is no series, more than one, slices that do not fit together, or a way
            of compression that is not installed.
    """
    pydicom = load_pydicom()
    slices = _chosen(_headers(pydicom, folder, name), series, name)
    first = slices[0]
    _check_alike(slices, name)
    slices.sort(key=lambda one: one.height)
    shape = (len(slices), first.rows, first.columns)
    check_voxels(shape, np.int16, name, most)
    affine = _affine(slices, name)
    rescales = {one.rescale for one in slices}
    voxels = _voxels(pydicom, slices, shape, is_scaled=len(rescales) > 1)
    slope, intercept = first.rescale if len(rescales) == 1 else (1.0, 0.0)
    window = slices[len(slices) // 2].window
    return Scan(voxels, name, affine, slope, intercept, window, first.is_inverted)


@contextmanager
def _errors_named(label: str) -> Iterator[None]:
    """Exceptions of pydicom as an `ImageError` that names the file; its warnings are not shown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except SamgraphError:
        raise
    except MemoryError as error:
        raise ImageError(f"{label} needs more memory than there is") from error
    except Exception as error:
        reason = shown(str(error)) or type(error).__name__
        raise ImageError(f"{label} is damaged or cannot be read", got=reason) from error


def _headers(pydicom: ModuleType, folder: Path, name: str) -> list[Slice]:
    """The images among the files of a folder."""
    try:
        with os.scandir(folder) as entries:
            paths = sorted(
                Path(entry) for entry in entries if entry.is_file() and entry.name[0] != "."
            )
    except OSError as error:
        raise ImageError(
            f"{name} cannot be read", got=str(error.strerror or error).lower()
        ) from error
    if len(paths) > MOST_FILES:
        raise ImageError(f"{name} holds {len(paths):,} files", expected=f"at most {MOST_FILES:,}")
    found = [one for path in paths if is_dicom(path) for one in _header(pydicom, path)]
    if not found:
        got = f"{len(paths)} other files" if paths else "no files"
        raise ImageError(
            f"{name} holds no DICOM images", got=got, hint="give the folder with the slices"
        )
    return found


def is_dicom(path: Path) -> bool:
    """Whether a file says that it is DICOM."""
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def _header(pydicom: ModuleType, path: Path) -> list[Slice]:
    """The slice in a file; nothing where it is no image, such as a DICOMDIR."""
    label = f"`{shown(str(path))}`"
    with _errors_named(label):
        if path.stat().st_size > MOST_BYTES:
            raise ImageError(f"{label} is too large", expected=f"at most {MOST_BYTES:,} bytes")
        syntax = str(pydicom.filereader.read_file_meta_info(path).get("TransferSyntaxUID", ""))
        if syntax == _DEFLATED:
            raise ImageError(
                f"{label} is deflated as a whole",
                got=syntax,
                hint="save it uncompressed, with dcmconv or gdcmconv",
            )
        data = pydicom.dcmread(path, stop_before_pixels=True)
        if "Rows" not in data or "Columns" not in data:
            return []
        _refuse_what_is_no_slice(data, label)
        return [_slice(data, path)]


def _refuse_what_is_no_slice(data: Any, label: str) -> None:
    """Raise `ImageError` for several frames in a file, and for colours."""
    if int(data.get("NumberOfFrames", None) or 1) > 1:
        raise ImageError(
            f"{label} holds {data.NumberOfFrames} frames in one file",
            expected="a file per slice",
            hint="convert it to NIfTI, for example with dcm2niix",
        )
    kind = str(data.get("PhotometricInterpretation", "MONOCHROME2"))
    if int(data.get("SamplesPerPixel", 1)) != 1 or not kind.startswith("MONOCHROME"):
        raise ImageError(f"{label} is in colour", got=kind, expected="MONOCHROME1 or MONOCHROME2")


def _slice(data: Any, path: Path) -> Slice:
    description = str(data.get("SeriesDescription", "") or "")
    number = data.get("SeriesNumber", None)
    about = " ".join(f"{data.get('Modality', '')} {description}".split())
    return Slice(
        path,
        str(data.get("SeriesInstanceUID", "")),
        f"{'' if number is None else number}: {about}".strip(": "),
        int(data.get("InstanceNumber", None) or 0),
        int(data.Rows),
        int(data.Columns),
        (int(data.get("BitsAllocated", 16)), int(data.get("PixelRepresentation", 0))),
        _numbers(data, "ImagePositionPatient", 3),
        _numbers(data, "ImageOrientationPatient", 6),
        _numbers(data, "PixelSpacing", 2) or (1.0, 1.0),
        (
            (_numbers(data, "RescaleSlope", 1) or (1.0,))[0],
            (_numbers(data, "RescaleIntercept", 1) or (0.0,))[0],
        ),
        _window(data),
        str(data.get("PhotometricInterpretation", "")) == "MONOCHROME1",
    )


def _numbers(data: Any, keyword: str, count: int) -> tuple[float, ...] | None:
    """Finite numbers of an element; None where it has others, or fewer."""
    value = data.get(keyword, None)
    if value is None or value == "":
        return None
    parts = [value] if isinstance(value, int | float | str) else list(value)
    found = tuple(float(part) for part in parts[:count])
    return found if len(found) == count and np.isfinite(found).all() else None


def _window(data: Any) -> tuple[float, float] | None:
    level, width = _numbers(data, "WindowCenter", 1), _numbers(data, "WindowWidth", 1)
    return (level[0], width[0]) if level and width and width[0] > 0 else None


def _chosen(slices: list[Slice], series: str | None, name: str) -> list[Slice]:
    """The slices of one series."""
    groups: dict[str, list[Slice]] = {}
    for one in slices:
        groups.setdefault(one.series, []).append(one)
    if series is not None:
        wanted = [
            group
            for uid, group in groups.items()
            if str(series) in (uid, group[0].about.partition(":")[0])
        ]
    else:
        wanted = list(groups.values())
    if len(wanted) == 1:
        return wanted[0]
    listed = "; ".join(
        f"{uid} ({group[0].about}, {len(group)} slices)" for uid, group in list(groups.items())[:8]
    )
    if series is None:
        raise ImageError(
            f"{name} holds {len(groups)} series",
            got=shown(listed),
            hint="choose one by its UID or number: `series=`, or --series",
        )
    what = "no series" if not wanted else f"{len(wanted)} series"
    raise ImageError(f"{name} holds {what} `{shown(str(series))}`", expected=shown(listed))


def _check_alike(slices: list[Slice], name: str) -> None:
    """Raise `ImageError` for slices that make no volume."""
    first = slices[0]
    for one in slices:
        if (one.rows, one.columns) != (first.rows, first.columns):
            raise ImageError(
                f"the slices of {name} have different sizes",
                got=f"{one.columns} x {one.rows} in `{shown(one.path.name)}`",
                expected=f"{first.columns} x {first.rows}",
            )
        pairs = ((one.orientation, first.orientation), (one.spacing, first.spacing))
        is_placed = (one.position is None) == (first.position is None)
        for mine, other in pairs:
            is_placed = is_placed and (mine is None) == (other is None)
            if mine is not None and other is not None:
                is_placed = is_placed and np.allclose(mine, other, atol=_SAME_ORIENTATION)
        if not is_placed or one.is_inverted != first.is_inverted:
            raise ImageError(
                f"the slices of {name} do not belong together",
                got=f"`{shown(one.path.name)}` has another orientation, spacing or photometry",
                hint="move other images, such as localizers, to another folder",
            )


def _affine(slices: list[Slice], name: str) -> NDArray[np.float64] | None:
    """Indices to millimetres right, anterior, superior; None where positions are unknown."""
    first, last = slices[0], slices[-1]
    if first.position is None or first.orientation is None or last.position is None:
        return None
    steps = np.diff([one.height for one in slices])
    if steps.size and steps.min() < 1e-4:
        index = int(np.argmin(steps))
        raise ImageError(
            f"two slices of {name} are at the same position",
            got=f"`{shown(slices[index].path.name)}` and `{shown(slices[index + 1].path.name)}`",
            hint="a series of several phases or echoes must be split first",
        )
    if steps.size and steps.max() - steps.min() > _EVEN * np.median(steps):
        text = f"{steps.min():.3g} to {steps.max():.3g} mm"
        warnings.warn(
            f"the slices of {name} are not evenly spaced ({text}): slices may be missing",
            SamgraphWarning,
            stacklevel=4,
        )
    right, down = np.array(first.orientation[:3]), np.array(first.orientation[3:])
    start, stop = np.array(first.position), np.array(last.position)
    through = np.cross(right, down) if len(slices) == 1 else (stop - start) / (len(slices) - 1)
    affine = np.eye(4)
    affine[:3, :3] = np.stack([right * first.spacing[1], down * first.spacing[0], through], axis=1)
    affine[:3, 3] = start
    return usable(np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine)  # DICOM counts to the left and back


def _voxels(
    pydicom: ModuleType, slices: list[Slice], shape: tuple[int, int, int], *, is_scaled: bool
) -> NDArray[Any]:
    """The pixels of all slices; as values where slices have units of their own."""
    found: NDArray[Any] | None = None
    kinds = {one.bits for one in slices}
    for index, one in enumerate(slices):
        label = f"`{shown(str(one.path))}`"
        with _errors_named(label):
            data = pydicom.dcmread(one.path)
            _require_decoder(pydicom, data, label)
            pixels = data.pixel_array
            if pixels.shape != shape[1:]:
                raise ImageError(f"{label} is damaged", got=f"{list(pixels.shape)} pixels")
            if is_scaled:
                pixels = (pixels * float(one.rescale[0]) + one.rescale[1]).astype(np.float32)
            elif len(kinds) > 1:
                pixels = pixels.astype(np.float32)
            if found is None:
                found = np.empty(shape, pixels.dtype)
            found[index] = pixels
    return np.empty(shape, np.int16) if found is None else found


def _require_decoder(pydicom: ModuleType, data: Any, label: str) -> None:
    """Raise `ImageError` where pixels are compressed in a way that nothing here unpacks."""
    syntax = data.file_meta.TransferSyntaxUID
    if "PixelData" not in data:
        raise ImageError(f"{label} holds no pixels")
    if not syntax.is_compressed:
        return
    from pydicom.pixels import get_decoder

    try:
        is_known = get_decoder(syntax).is_available
    except NotImplementedError:
        is_known = False
    if not is_known:
        raise ImageError(
            f"{label} is compressed in a way that is not installed",
            got=shown(str(syntax.name)),
            hint="pip install pylibjpeg[all], or decompress it with gdcmconv --raw",
        )
