"""Volumes such as CT and MR scans: reading, orientation, windows, slices as frames, writing."""
