"""Exporters: graphs and weights become files. `find_exporter` imports one when it is asked for."""

from samgraph.exporters.protocol import Exporter, ExportOptions, exporter_names, find_exporter

__all__ = ["ExportOptions", "Exporter", "exporter_names", "find_exporter"]
