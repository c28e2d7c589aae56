"""The eight checkpoints released by Meta, and the spellings of their names."""

import re
from dataclasses import dataclass

from samgraph.checkpoint.builtin import NANO
from samgraph.checkpoint.sister_files import SISTER_FILES
from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

BASE = "https://dl.fbaipublicfiles.com/segment_anything_2"
SIZES = ("tiny", "small", "base-plus", "large")
DEFAULT_VERSION = "2.1"


@dataclass(frozen=True, slots=True)
class Release:
    """A released file: its name here, Meta's file name and URL, and its sha256."""

    name: str
    file: str
    sha256: str
    parameters: int
    address: str

    @property
    def approximate_bytes(self) -> int:
        """Size of the file to within one percent: four bytes per parameter."""
        return 4 * self.parameters


def _release(version: str, size: str, parameters: str, sha256: str) -> Release:
    """A release with Meta's file name and URL; each version has a folder named by its date."""
    file = f"sam{version}_hiera_{size.replace('-', '_')}.pt"
    folder = "072824" if version == "2" else "092824"
    name = f"sam{version}-{size}"
    return Release(name, file, sha256, int(parameters), f"{BASE}/{folder}/{file}")


# Version, size, number of values in the file (with the Fourier matrix), sha256.
TABLE = """
2    tiny        38946242  65b50056e05bcb13694174f51bb6da89c894b57b75ccdf0ba6352c597c5d1125
2    small       46044098  95949964d4e548409021d47b22712d5f1abf2564cc0c3c765ba599a24ac7dce3
2    base-plus   80833922  d0bb7f236400a49669ffdd1be617959a8b1d1065081789d7bbff88eded3a8071
2    large      224430386  7442e4e9b732a508f80e141e7c2913437a3610ee0c77381a66658c3a445df87b
2.1  tiny        38962754  7402e0d864fa82708a20fbd15bc84245c2f26dff0eb43a4b5b93452deb34be69
2.1  small       46060610  6d1aa6f30de5c92224f8172114de081d104bbd23dd9dc5c58996f0cad5dc4d38
2.1  base-plus   80850434  a2345aede8715ab1d5d31b4a509fb160c5a4af1970f199d9054ccfb746c004c5
2.1  large      224446898  2647878d5dfa5098f2f8649825738a9345572bae2d4350a2468587ece47dd318
"""
RELEASES = tuple(_release(*line.split()) for line in TABLE.strip().splitlines())
BY_NAME = {release.name: release for release in RELEASES}

ALIASES = {"t": "tiny", "s": "small", "b": "base-plus", "base": "base-plus", "l": "large"}
NAME = (
    r"(?:facebook/)?(?:sam-?(?P<version>2[.\-]?1|2)(?:-hiera)?-|hiera-)?"
    r"(?P<size>[a-z]+(?:-plus|plus)?)(?:\.pt)?"
)


def normalise(name: str) -> str:
    """The canonical name of a release: `sam2.1_hiera_b+` and `base-plus` are `sam2.1-base-plus`."""
    text = name.strip().lower().replace("_", "-").replace("+", "-plus")
    found = re.fullmatch(NAME, text)
    if found:
        size = re.sub(r"-?plus$", "", found["size"])
        size = ALIASES.get(size, size)
        if "plus" in found["size"] and size != "base-plus":
            size = found["size"]
        version = "2" if found["version"] == "2" else DEFAULT_VERSION
        if f"sam{version}-{size}" in BY_NAME:
            return f"sam{version}-{size}"
    from difflib import get_close_matches

    known = [NANO.name, *BY_NAME, *(file.name for file in SISTER_FILES)]
    near = get_close_matches(text, [*known, *SIZES], n=1, cutoff=0.5)
    raise CheckpointError(
        f"there is no released model called `{shown(name)}`",
        expected=", ".join(known),
        hint=f"did you mean `{near[0]}`?" if near else None,
    )


def find_release(name: str) -> Release:
    """The release with this name, in any of its spellings."""
    return BY_NAME[normalise(name)]
