"""One image or several, encoded once and prompted."""
