"""How the built-in model, `samgraph-nano`, was made. See README.md."""
