"""The reference's modules `sam2.utils`."""
