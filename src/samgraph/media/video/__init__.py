"""Video files, frame sources, prefetching and writing."""
