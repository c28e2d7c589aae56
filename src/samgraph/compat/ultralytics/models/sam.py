"""The library's module `ultralytics.models.sam`: names of `samgraph.compat.ultralytics`."""

from samgraph.compat.ultralytics import SAM, Predictor, SAM2Predictor, SAM2VideoPredictor

__all__ = ["SAM", "Predictor", "SAM2Predictor", "SAM2VideoPredictor"]
