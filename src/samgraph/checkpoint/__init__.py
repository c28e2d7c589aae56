"""Checkpoints: safe reading and writing, names of releases, and matching with a model.

`samgraph.checkpoint.download` fetches the released files; it is imported only when needed.
"""

from samgraph.checkpoint.foreign import describe_foreign
from samgraph.checkpoint.match import LoadReport, best_match, check
from samgraph.checkpoint.names import RELEASES, Release, find_release, normalise
from samgraph.checkpoint.reading import (
    Checkpoint,
    as_float32,
    from_mapping,
    read,
    with_meta_names,
)
from samgraph.checkpoint.safetensors_file import Precision, save

__all__ = [
    "RELEASES",
    "Checkpoint",
    "LoadReport",
    "Precision",
    "Release",
    "as_float32",
    "best_match",
    "check",
    "describe_foreign",
    "find_release",
    "from_mapping",
    "normalise",
    "read",
    "save",
    "with_meta_names",
]
