"""Exporters: graphs and weights become files. `find_exporter` imports one when it is asked for."""

from samgraph.exporters.protocol import (
    Exporter,
    ExportOptions,
    Written,
    exporter_names,
    find_exporter,
    write_file,
)

__all__ = [
    "ExportOptions",
    "Exporter",
    "Written",
    "exporter_names",
    "find_exporter",
    "write_file",
]
