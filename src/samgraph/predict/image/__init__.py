"""One image or several: encoded once, then prompted."""
