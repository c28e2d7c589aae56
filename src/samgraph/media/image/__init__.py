"""Reading and writing images, and preprocessing for the model."""
