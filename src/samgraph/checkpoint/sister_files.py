"""Published checkpoints of the sister models, which are given by path: samgraph has no address.

Some have the same tensors as others, and are told apart by the name of the file or by its sha256.
"""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from samgraph.errors import CheckpointError

APACHE = "Apache-2.0"


@dataclass(frozen=True, slots=True)
class SisterFile:
    """A published file: its name here, its own name, its licence, and its sha256 where known.

    `others` are further published files of the same config, with other weights.
    """

    name: str
    file: str
    parameters: int  # values in the file
    where: str
    sha256: str | None = None
    licence: str | None = APACHE  # None: its authors' page says it
    others: tuple[str, ...] = ()

    @property
    def approximate_bytes(self) -> int:
        """Size of the file to within one percent: four bytes per parameter."""
        return 4 * self.parameters


_EDGETAM = SisterFile(
    "edgetam", "edgetam.pt", 13_943_148, "the folder `checkpoints` of the EdgeTAM repository"
)
_MEDSAM2 = SisterFile(
    "medsam2",
    "MedSAM2_latest.pt",
    38_962_754,
    "the model page of MedSAM 2's authors",
    licence=None,
    others=(
        "MedSAM2_2411.pt",
        "MedSAM2_CTLesion.pt",
        "MedSAM2_MRI_LiverLesion.pt",
        "MedSAM2_US_Heart.pt",
    ),
)
_WHERE = "the model page of EfficientTAM's authors"
# Size, variant, number of values, sha256 if it is known.
_TABLE = """
s   -        34056098  2b572be30d9e96ee29c8d785fe157c6b079ede7d56fbc8a3671d4120e63c89cd
s   1        34056098  -
s   2        34056098  -
s   512x512  34056098  67b5840012737ed2c94a4cb8787c5c1b27b3a946045d2e602e65ef77230b6085
ti  -        17866274  acbb17b28cca1f860acee09c9ecb6efdb732080dc7a85a07292c31813175fa7d
ti  1        17866274  -
ti  2        17866274  -
ti  512x512  17866274  7d4d652a465f0081391050932f45d8a66768ccc99c8ea393ce8a5927e83f3b9b
"""


def _efficienttam(size: str, variant: str, parameters: str, sha256: str) -> SisterFile:
    end = "" if variant == "-" else f"-{variant}"
    name = f"efficienttam-{size}{end}"
    known = None if sha256 == "-" else sha256
    return SisterFile(name, f"{name.replace('-', '_')}.pt", int(parameters), _WHERE, known)


SISTER_FILES = (
    _EDGETAM,
    *(_efficienttam(*line.split()) for line in _TABLE.strip().splitlines()),
    _MEDSAM2,
)


def find_sister(name: str) -> SisterFile | None:
    """The file of a model by its name or the file's, with or without `.pt`; None if unknown."""
    text = _plain(name)
    for file in SISTER_FILES:
        if text == file.name:
            return file
        for published in (file.file, *file.others):
            if text == _plain(published):
                return replace(file, file=published)
    return None


def published_name(path: str | os.PathLike[str], *, by_hash: bool = True) -> str | None:
    """The name of the model that a file is of, by the file's own name, else by its sha256.

    Costs a read of the file where its name is not a published one, unless `by_hash` is off.
    """
    named = find_sister(Path(path).stem)
    if named is not None or not by_hash:
        return None if named is None else named.name
    try:
        with open(path, "rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
    return next((file.name for file in SISTER_FILES if file.sha256 == found), None)


def not_downloaded(file: SisterFile, folder: Path) -> CheckpointError:
    """The error for a model that is asked for by name, but whose file is not in the folder."""
    return CheckpointError(
        f"`{file.name}` cannot be downloaded: samgraph has no address for it",
        expected=f"the path of `{file.file}`, from {file.where}",
        hint=f"put it into {folder} to load it by name",
    )


def _plain(name: str) -> str:
    return name.strip().lower().removesuffix(".pt").replace("_", "-")
