"""The reference's names, for one-line migration: `from samgraph.compat import ...`.

The arguments, shapes and order of results are those of Meta's `sam2` package, with numpy arrays
instead of tensors.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samgraph.compat.automatic import SAM2AutomaticMaskGenerator
    from samgraph.compat.image import SAM2ImagePredictor, build_sam2, build_sam2_hf
    from samgraph.compat.video import (
        SAM2VideoPredictor,
        build_sam2_video_predictor,
        build_sam2_video_predictor_hf,
    )

# Name, and the module of this package it lives in; imported when it is first used.
_NAMES = {
    "SAM2AutomaticMaskGenerator": "automatic",
    "SAM2ImagePredictor": "image",
    "SAM2VideoPredictor": "video",
    "build_sam2": "image",
    "build_sam2_hf": "image",
    "build_sam2_video_predictor": "video",
    "build_sam2_video_predictor_hf": "video",
}

__all__ = [
    "SAM2AutomaticMaskGenerator",
    "SAM2ImagePredictor",
    "SAM2VideoPredictor",
    "build_sam2",
    "build_sam2_hf",
    "build_sam2_video_predictor",
    "build_sam2_video_predictor_hf",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module `samgraph.compat` has no `{name}`")
    return getattr(importlib.import_module(f"samgraph.compat.{_NAMES[name]}"), name)
