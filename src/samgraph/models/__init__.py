"""Model families, one folder each, and the registry that finds them.

A folder has a module `family` with an object `family` (see `family.py`). Adding a family is a
folder and a line in `FOLDERS`; nothing else names it.
"""

import importlib

from samgraph.errors import OptionError
from samgraph.models.family import Family

FOLDERS = {
    "sam2": "samgraph.models.sam2.family",
    "edgetam": "samgraph.models.edgetam.family",
    "efficienttam": "samgraph.models.efficienttam.family",
    "nano": "samgraph.models.nano.family",
}


def find_family(name: str) -> Family:
    """The family called `name`, imported now."""
    if name not in FOLDERS:
        raise OptionError(f"there is no model family `{name}`", expected=", ".join(FOLDERS))
    family: Family = importlib.import_module(FOLDERS[name]).family
    return family


def families() -> list[Family]:
    """All families, in the order in which a checkpoint is tried against them."""
    return [find_family(name) for name in FOLDERS]


__all__ = ["FOLDERS", "Family", "families", "find_family"]
