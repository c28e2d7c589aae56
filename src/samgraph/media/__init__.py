"""Pictures, videos and masks: in, out, and everything in between that needs no model."""
