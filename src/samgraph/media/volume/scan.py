"""A volume of voxels as stored, and where it is in the patient.

Axes are [Z, Y, X], as in DICOM series and in arrays of SimpleITK; a NIfTI file, whose voxels are
counted (i, j, k), is X = i, Y = j, Z = k. Voxels keep the type they are stored in.
"""

from dataclasses import dataclass, field
from itertools import permutations
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, OptionError
from samgraph.untrusted.arguments import whole

Voxels = NDArray[Any]
Affine = NDArray[np.float64]
MAX_VOXELS = 1 << 30  # 2 GB of a CT scan
_CHUNK = 1 << 22
# Planes, by the direction in the patient (right, anterior, superior) that their slices follow.
PLANES = ("sagittal", "coronal", "axial")


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """Voxels [Z, Y, X] and what a file says about them.

    Attributes:
        voxels: As stored; the value is `slope * voxel + intercept`.
        name: What it is called in messages.
        affine: Indices (x, y, z) to millimetres to the right, anterior, superior; None if unknown.
        slope: The unit of stored values.
        intercept: The value of a stored zero.
        window: Level and width that the file suggests.
        is_inverted: Whether high values are shown dark.
        header: The NIfTI header, which a mask takes over.
    """

    voxels: Voxels
    name: str = "the array"
    affine: Affine | None = None
    slope: float = 1.0
    intercept: float = 0.0
    window: tuple[float, float] | None = None
    is_inverted: bool = False
    header: Any = field(default=None, repr=False)

    @property
    def spacing(self) -> tuple[float, float, float] | None:
        """Millimetres between voxels along Z, Y, X; None if unknown."""
        if self.affine is None:
            return None
        x, y, z = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(z), float(y), float(x)

    @property
    def voxel_volume(self) -> float | None:
        """Cubic millimetres of a voxel; None if unknown."""
        return None if self.affine is None else float(abs(np.linalg.det(self.affine[:3, :3])))

    def axis_of(self, axis: int | str | None) -> int:
        """The axis of `voxels` that slices follow: by number, by plane, or the first.

        Raises:
            OptionError: There is no such axis, or the orientation is not known.
        """
        if axis is None:
            return 0
        if isinstance(axis, str) and axis in PLANES:
            if self.affine is None:
                raise OptionError(
                    f"{self.name} has no orientation, so its {axis} slices are not known",
                    hint="name the axis by its number: axis=0, 1 or 2",
                )
            return 2 - directions(self.affine)[PLANES.index(axis)]
        if isinstance(axis, str):
            expected = "0, 1, 2, " + ", ".join(PLANES[::-1])
            raise OptionError(f"there is no axis `{axis}`", expected=expected)
        return whole("axis", axis, 0, 2)


def directions(affine: Affine) -> tuple[int, int, int]:
    """For right, anterior and superior: the index (0: x, 1: y, 2: z) that goes most along it."""
    columns = np.abs(affine[:3, :3])
    share = columns / np.linalg.norm(columns, axis=0)
    best = max(permutations(range(3)), key=lambda order: sum(share[w, order[w]] for w in range(3)))
    return best[0], best[1], best[2]


def usable(affine: Any) -> Affine | None:
    """The affine as float64, or None if it places no volume anywhere."""
    found = np.asarray(affine, np.float64)
    if found.shape != (4, 4) or not np.isfinite(found).all():
        return None
    lengths = np.linalg.norm(found[:3, :3], axis=0)
    if not (lengths > 1e-9).all() or (lengths > 1e9).any():
        return None
    return found if abs(np.linalg.det(found[:3, :3] / lengths)) > 1e-6 else None


def check_voxels(shape: tuple[int, ...], dtype: Any, name: str, most: int) -> None:
    """Refuse what is no volume, before anything is allocated.

    Raises:
        ImageError: It has other than three axes, no voxels, too many, or no numbers in them.
    """
    text = " x ".join(str(length) for length in shape[:8]) or "a single number"
    if len(shape) != 3:
        hint = None
        if len(shape) == 4:
            hint = "give one of its volumes, such as array[..., 0]; for frames, `model.video`"
        raise ImageError(f"{name} is not a volume", got=text, expected="three axes", hint=hint)
    if not all(length > 0 for length in shape):
        raise ImageError(f"{name} holds no voxels", got=text)
    count = 1
    for length in shape:
        count *= int(length)
    if count > most:
        raise ImageError(
            f"{name} declares {text} voxels",
            got=f"{count:,}",
            expected=f"at most {most:,}",
            hint=f"pass `max_voxels={count:_}`" if count < 1 << 36 else None,
        )
    if np.dtype(dtype).kind not in "biuf":
        raise ImageError(
            f"{name} does not hold one number per voxel",
            got=str(np.dtype(dtype)),
            expected="integers or floats",
        )


def filled(file: IO[bytes], voxels: Voxels, name: str) -> Voxels:
    """An array of one axis, filled from a file that says how long it is.

    Raises:
        ImageError: The file is shorter.
    """
    rest = voxels.data.cast("B")
    while len(rest):
        piece = file.read(min(_CHUNK, len(rest)))
        if not piece:
            raise ImageError(f"{name} is cut short", got=f"{len(rest):,} bytes are missing")
        rest[: len(piece)] = piece
        rest = rest[len(piece) :]
    return voxels


def scan_of_array(array: Any, name: str = "the array", most: int = MAX_VOXELS) -> Scan:
    """An array [Z, Y, X] as a volume without an orientation.

    Raises:
        ImageError: It is no volume.
    """
    check_voxels(array.shape, array.dtype, name, most)
    return Scan(array, name)
