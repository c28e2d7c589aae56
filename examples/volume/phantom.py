"""Segment an organ in a CT scan from a box on one slice.

    python phantom.py [scan.nii.gz X0,Y0,X1,Y1 SLICE]

Without arguments the scan is a phantom that is drawn here: a body in air, a spine, and an organ
that moves and changes its size from slice to slice. The mask is compared with the organ that was
drawn. Any model does: `samgraph.load("MedSAM2_latest.pt")` loads MedSAM 2.
"""

import sys

import numpy as np
from numpy.typing import NDArray

import samgraph

SHAPE = (24, 96, 128)  # slices, rows, columns
AIR, BODY, SPINE, ORGAN = -1000, -80, 300, 160  # Hounsfield units
KEY = 12


def drawn_scan() -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """The scan, and where the organ is: both [Z, Y, X]."""
    z, y, x = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    scan = np.full(SHAPE, AIR, np.int16)
    scan[np.broadcast_to(((y - 48) / 42) ** 2 + ((x - 64) / 58) ** 2 <= 1, SHAPE)] = BODY
    scan[np.broadcast_to((y - 76) ** 2 + (x - 64) ** 2 <= 8**2, SHAPE)] = SPINE
    height = 1 - ((z - KEY) / 9.0) ** 2
    across = ((y - 42) / 19) ** 2 + ((x - 48 - 0.8 * (z - KEY)) / 25) ** 2
    organ = np.asarray(across <= height)
    scan[organ] = ORGAN
    noise = np.random.default_rng(0).normal(0, 4, SHAPE)
    return (scan + noise).astype(np.int16), organ


def segmented(
    model: samgraph.Model, source: object, box: tuple[float, ...], key: int
) -> samgraph.VolumeResult:
    """The object in a box on one slice, followed through the slices on both sides."""
    volume = model.volume(source, window="abdomen")
    volume.add(slice=key, box=box)
    return volume.segment(progress=None)


def overlap(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """The Dice coefficient of two masks."""
    return float(2 * (one & other).sum() / max(1, one.sum() + other.sum()))


def main() -> None:
    """Segment a scan, or the phantom."""
    model = samgraph.load()
    if len(sys.argv) == 4:
        box = tuple(float(part) for part in sys.argv[2].split(","))
        result = segmented(model, sys.argv[1], box, int(sys.argv[3]))
        print(result, result.save("mask.nii.gz"))
        return
    scan, organ = drawn_scan()
    rows, columns = np.nonzero(organ[KEY])
    box = (columns.min() - 3, rows.min() - 3, columns.max() + 4, rows.max() + 4)
    result = segmented(model, scan, box, KEY)
    print(f"{result.voxels[1]:,} voxels on slices {result.slices()}")
    print(f"Dice with the organ that was drawn: {overlap(result.mask(), organ):.3f}")


if __name__ == "__main__":
    main()
