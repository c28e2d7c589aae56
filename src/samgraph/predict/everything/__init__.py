"""Automatic masks of everything in an image."""
