"""What an exporter is: it writes graphs with their weights as files that something else runs.

An exporter is one folder with an object called `exporter`. Like an engine it declares the passes it
wants; nothing outside its folder names it, but for the table here.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from samgraph.engines.protocol import Listing
from samgraph.errors import EngineError, OptionError
from samgraph.graph.graph import Graph
from samgraph.graph.types import Array
from samgraph.passes.pipeline import Precision, Step

_FOLDERS: dict[str, Listing] = {}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export."""

    precision: Precision = "fp32"


class Exporter(Protocol):
    """A kind of file that graphs can be written to."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    @property
    def passes(self) -> tuple[Step, ...]:
        """Its pipeline: shared passes and its own, in order."""
        ...

    def export(
        self,
        graphs: Mapping[str, Graph],
        weights: Mapping[str, Array],
        folder: Path,
        options: ExportOptions,
    ) -> list[Path]:
        """Write traced graphs, by name, to a folder that exists; gives the files it wrote."""
        ...


def exporter_names() -> tuple[str, ...]:
    """The exporters that exist, whether or not they can be used here."""
    return tuple(_FOLDERS)


def find_exporter(name: str) -> Exporter:
    """The exporter called `name`, imported now."""
    if name not in _FOLDERS:
        names = ", ".join(_FOLDERS) or "none in this version"
        raise OptionError(f"there is no exporter `{name}`", expected=names)
    listing = _FOLDERS[name]
    try:
        module = importlib.import_module(listing.folder)
    except ImportError as error:
        raise EngineError(
            f"exporter `{name}` cannot be loaded", got=error, hint=listing.hint
        ) from error
    exporter: Exporter = module.exporter
    return exporter
