"""Drawn volumes: an ellipsoid in Hounsfield units, and a DICOM series of it."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

AIR, BODY, ORGAN = -1000, 0, 80


def phantom(shape: tuple[int, int, int] = (8, 24, 32)) -> NDArray[np.int16]:
    """Air, a body, and an organ in it: int16 [Z, Y, X]."""
    z, y, x = np.ogrid[: shape[0], : shape[1], : shape[2]]

    def ball(share: float, shift: float = 0.0) -> NDArray[np.bool_]:
        sums: Any = 0.0
        for grid, length in zip((z, y, x), shape, strict=True):
            sums = sums + ((grid - (length - 1) / 2 - shift) / (share * length)) ** 2
        return np.asarray(sums <= 1)

    found = np.full(shape, AIR, np.int16)
    found[ball(0.45)] = BODY
    found[ball(0.2, 1.0)] = ORGAN
    return found


def write_series(folder: Path, voxels: NDArray[Any], **changes: Any) -> list[Path]:
    """A CT series of slices 2.5 mm apart, written in another order than that of positions.

    `changes` are elements of every file; a callable is given the number of the slice.
    """
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for index, pixels in enumerate(voxels):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID = CTImageStorage
        meta.MediaStorageSOPInstanceUID = f"1.2.3.{index}"
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        path = folder / f"{(7 * index) % len(voxels):03d}-{index}.dcm"
        data = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
        elements: dict[str, Any] = {
            "SOPClassUID": CTImageStorage,
            "SOPInstanceUID": f"1.2.3.{index}",
            "SeriesInstanceUID": "1.2.3",
            "SeriesNumber": 4,
            "Modality": "CT",
            "SeriesDescription": "abdomen",
            "InstanceNumber": len(voxels) - index,
            "ImagePositionPatient": [10.0, -20.0, 100.0 + 2.5 * index],
            "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
            "PixelSpacing": [0.5, 0.75],
            "Rows": pixels.shape[0],
            "Columns": pixels.shape[1],
            "SamplesPerPixel": 1,
            "PhotometricInterpretation": "MONOCHROME2",
            "BitsAllocated": 16,
            "BitsStored": 16,
            "HighBit": 15,
            "PixelRepresentation": 1,
            "RescaleSlope": 1,
            "RescaleIntercept": -1024,
            "WindowCenter": 40,
            "WindowWidth": 400,
            "PixelData": (pixels.astype(np.int16) + 1024).astype("<i2").tobytes(),
        }
        for keyword, value in {**elements, **changes}.items():
            chosen = value(index) if callable(value) else value
            if chosen is not None:
                setattr(data, keyword, chosen)
        data.save_as(path, enforce_file_format=True)
        paths.append(path)
    return paths
