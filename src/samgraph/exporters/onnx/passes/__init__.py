"""Passes of the ONNX exporter."""
