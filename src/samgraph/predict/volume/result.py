"""What was found in a volume: a mask per object, and files that lie on the scan they are of."""

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import OutputError, PromptError
from samgraph.media.files import write_atomically
from samgraph.media.volume.nifti import load_nibabel, nifti_bytes
from samgraph.media.volume.scan import Scan
from samgraph.predict.prompts import Mask
from samgraph.predict.video.prompts import ObjectId
from samgraph.untrusted.text import shown

SUFFIXES = (".nii.gz", ".nii", ".npy")
_MOST_LABELS = 65535


@dataclass(frozen=True, slots=True, eq=False)
class VolumeResult:
    """The objects in a volume, in the order they were added.

    Attributes:
        scan: The volume.
        axis: The axis that slices follow.
        scores: For each object the model's estimate of its mask's quality per slice; 0 where the
            slice was not looked at.
        numbers: The number of each object in `labels` and in files.
        packed: Masks, 8 voxels to a byte.
    """

    scan: Scan
    axis: int
    scores: Mapping[ObjectId, NDArray[np.float32]]
    numbers: Mapping[ObjectId, int]
    packed: Mapping[ObjectId, NDArray[np.uint8]]

    @classmethod
    def of(
        cls,
        scan: Scan,
        axis: int,
        masks: Mapping[ObjectId, Mask],
        scores: Mapping[ObjectId, NDArray[np.float32]],
    ) -> "VolumeResult":
        """The result with masks [S, H, W], slices first."""
        packed = {
            name: np.packbits(np.moveaxis(mask, 0, axis), axis=-1) for name, mask in masks.items()
        }
        return cls(scan, axis, scores, _numbered(masks), packed)

    def __repr__(self) -> str:
        found = ", ".join(f"{name!r}: {count:,}" for name, count in self.voxels.items())
        return f"<{self.scan.name}: voxels of objects {found}>"

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The ids of the objects."""
        return tuple(self.packed)

    def mask(self, object: ObjectId | None = None) -> Mask:
        """Where an object is: bool, in the shape of the volume; the only one if not named.

        Raises:
            PromptError: There is no such object, or more than one and none is named.
        """
        if object is None and len(self.packed) == 1:
            object = self.objects[0]
        if object is None or object not in self.packed:
            raise PromptError(
                "say which object's mask" if object is None else f"there is no object `{object}`",
                expected=", ".join(map(str, self.objects)),
            )
        width = self.scan.voxels.shape[-1]
        return np.unpackbits(self.packed[object], axis=-1, count=width).astype(np.bool_)

    @property
    def labels(self) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """The number of the object at each voxel, 0 where there is none.

        Where objects overlap, the one added last counts.
        """
        kind = np.uint8 if max(self.numbers.values()) < 256 else np.uint16
        labels = np.zeros(self.scan.voxels.shape, kind)
        for name in self.objects:
            labels[self.mask(name)] = self.numbers[name]
        return labels

    @property
    def voxels(self) -> dict[ObjectId, int]:
        """The number of voxels of each object."""
        return {name: int(np.bitwise_count(bits).sum()) for name, bits in self.packed.items()}

    @property
    def volumes(self) -> dict[ObjectId, float] | None:
        """Cubic millimetres of each object; None where the size of a voxel is not known."""
        size = self.scan.voxel_volume
        return None if size is None else {name: n * size for name, n in self.voxels.items()}

    def slices(self, object: ObjectId | None = None) -> tuple[int, int] | None:
        """The first and the last slice with something of an object; None if there is nothing."""
        others = tuple(axis for axis in range(3) if axis != self.axis)
        found = np.flatnonzero(self.mask(object).any(axis=others))
        return (int(found[0]), int(found[-1])) if found.size else None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `labels`: a NIfTI file on the same voxels as the scan, or `.npy`.

        A NIfTI scan's header is taken over, so that affine, orientation and units stay; a DICOM
        series becomes a file in its patient's coordinates.

        Raises:
            OutputError: The file cannot be written, or its suffix is none of these.
        """
        suffix = output_suffix(path)
        if suffix == ".npy":
            file = io.BytesIO()
            np.save(file, self.labels, allow_pickle=False)
            data = file.getvalue()
        else:
            data = nifti_bytes(self.labels, self.scan, is_packed=suffix == ".nii.gz")
        write_atomically(path, data)
        return Path(path)


def output_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix of a file that can be written here, before anything is computed.

    Raises:
        OutputError: There is no such format.
        ImageError: It needs nibabel, which is not installed.
    """
    text = os.fspath(path).lower()
    suffix = next((suffix for suffix in SUFFIXES if text.endswith(suffix)), None)
    if suffix is None:
        raise OutputError(
            f"`{shown(os.fspath(path))}` has no suffix of a volume", expected=", ".join(SUFFIXES)
        )
    if suffix != ".npy":
        load_nibabel()
    return suffix


def _numbered(names: Mapping[ObjectId, Mask]) -> dict[ObjectId, int]:
    """A number from 1 for each object: its id where that is one, else the first that is free."""
    own = {name for name in names if isinstance(name, int) and 1 <= name <= _MOST_LABELS}
    free = (number for number in range(1, _MOST_LABELS + 1) if number not in own)
    return {name: name if isinstance(name, int) and name in own else next(free) for name in names}
