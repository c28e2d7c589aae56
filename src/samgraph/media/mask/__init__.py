"""Masks: run-length encoding, geometry, polygons, connected components."""
