"""Tracking objects through videos and streams."""
