"""What an exporter is: it writes graphs with their weights as files that something else runs.

An exporter is one folder with an object called `exporter`. Like an engine it declares the passes it
wants; nothing outside its folder names it, but for the table here.
"""

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from samgraph.engines.protocol import Listing
from samgraph.errors import EngineError, OptionError, OutputError
from samgraph.graph.graph import Graph
from samgraph.graph.types import Array
from samgraph.passes.pipeline import Precision, Step
from samgraph.untrusted.text import shown

WeightsLocation: TypeAlias = Literal["inside", "beside"]

_FOLDERS: dict[str, Listing] = {
    "onnx": Listing("samgraph.exporters.onnx", extra="onnx"),
    "openvino": Listing("samgraph.exporters.openvino"),
    "web": Listing("samgraph.exporters.web.exporter", extra="onnx"),
}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export.

    Args:
        precision: Of the computation; inputs and outputs keep their dtypes.
        opset: The version of the operators, where the format has one; None for its default.
        fixed: Symbols with a fixed length, such as ``{"N": 1}``; the others stay symbolic.
        weights: Inside the files of the graphs, or beside them in a file that they share.
        half_weights: Weights are stored in fp16, and cast where the computation is in float32.
        exact: Graphs that stay in float32 whatever the precision.
        runtime: The folder of the runtime that goes with the files, where one does.
    """

    precision: Precision = "fp32"
    opset: int | None = None
    fixed: Mapping[str, int] = field(default_factory=dict)
    weights: WeightsLocation = "inside"
    half_weights: bool = False
    exact: frozenset[str] = frozenset()
    runtime: Path | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The files of an export: one for each graph, and those that belong to all."""

    graphs: Mapping[str, Path]
    shared: tuple[Path, ...] = ()
    details: Mapping[str, str | int] = field(default_factory=dict)  # for the manifest

    @property
    def files(self) -> list[Path]:
        """All files."""
        return [*self.graphs.values(), *self.shared]


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
    ) -> Written:
        """Write traced graphs, by name, to a folder that exists; gives the files it wrote.

        It may leave out graphs that what runs the files has no use for.
        """
        ...


def exporter_names() -> tuple[str, ...]:
    """The exporters that exist, whether or not they can be used here."""
    return tuple(_FOLDERS)


def find_exporter(name: str) -> Exporter:
    """The exporter called `name`, imported now."""
    if name not in _FOLDERS:
        names = ", ".join(_FOLDERS) or "none in this version"
        raise OptionError(f"there is no exporter `{shown(name)}`", expected=names)
    listing = _FOLDERS[name]
    try:
        module = importlib.import_module(listing.folder)
    except ImportError as error:
        raise EngineError(
            f"exporter `{name}` cannot be loaded", got=error, hint=listing.hint
        ) from error
    exporter: Exporter = module.exporter
    return exporter


def write_file(path: Path, data: bytes) -> Path:
    """Write a file of an export, under its name only when it is whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"`{shown(str(path))}` cannot be written", got=reason) from error
    return path
