"""Part of samgraph."""
