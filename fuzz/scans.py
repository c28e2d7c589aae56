"""A target that reads volumes: `.npy`, NIfTI and DICOM, the last two where their libraries are."""

import gzip
import importlib.util
import io
import random
import warnings
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fuzz.mutators import mutate_bytes
from fuzz.target import BrokenPromiseError, Target
from samgraph.errors import ImageError, SamgraphWarning
from samgraph.media.volume.dicom import is_dicom
from samgraph.media.volume.nifti import nifti_bytes
from samgraph.media.volume.opening import open_scan
from samgraph.media.volume.scan import Scan
from samgraph.media.volume.slices import Slices
from tests.media.volume.drawn import phantom, write_series


class VolumeTarget(Target):
    """A volume: its voxels, its slices along every axis, and a mask of it."""

    name, errors, seconds, megabytes = "volume", (ImageError,), 4.0, 512

    @cached_property
    def seeds(self) -> list[bytes]:
        file, voxels = io.BytesIO(), phantom((3, 5, 7))
        np.save(file, voxels)
        found = [file.getvalue()]
        if importlib.util.find_spec("nibabel") is not None:
            data = nifti_bytes(
                voxels, Scan(voxels, affine=np.diag([-1.0, 1, 3, 1])), is_packed=False
            )
            found += [data, gzip.compress(data, mtime=0)]
        if importlib.util.find_spec("pydicom") is not None:
            with TemporaryDirectory() as folder:
                found.append(write_series(Path(folder), voxels[:1])[0].read_bytes())
        return found

    def make(self, rng: random.Random) -> bytes:
        seed = rng.choice(self.seeds)
        return mutate_bytes(rng, seed, [seed])

    def use(self, data: bytes, folder: Path) -> None:
        path = folder / "scan"
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamgraphWarning)
            scan = open_scan(folder if is_dicom(path) else path, max_voxels=1 << 22)
        for axis in range(3):
            slices = Slices(scan, axis)
            if slices.picture(0).shape != slices.size_hw:
                raise BrokenPromiseError(f"a slice is {slices.picture(0).shape}")
        if scan.header is not None:
            nifti_bytes(np.zeros(scan.voxels.shape, np.uint8), scan, is_packed=False)

    def good(self) -> list[bytes]:
        return self.seeds


TARGETS = (VolumeTarget,)
