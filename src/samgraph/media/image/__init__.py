"""Images in and out, and resizing into the model."""
