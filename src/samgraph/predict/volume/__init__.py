"""Segmenting volumes slice by slice: prompts on key slices, tracked in both directions."""
