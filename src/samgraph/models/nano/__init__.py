"""samgraph-nano, the built-in model: a TinyViT trunk, masks at half of the input's resolution."""
