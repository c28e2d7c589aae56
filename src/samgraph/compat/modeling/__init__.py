"""The reference's module `sam2.modeling`, as far as programs that run the model import it."""
