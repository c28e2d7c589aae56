"""Untrusted input: file names, files and JSON, read within limits and shown escaped."""
