"""Video files, frame sources, prefetching and video writing."""
