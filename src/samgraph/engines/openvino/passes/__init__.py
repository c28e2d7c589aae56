"""Passes of the OpenVINO engine, one file each; `pipeline.py` lists them in order."""
