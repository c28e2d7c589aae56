"""The reference's names, for one-line migration: `from samgraph.compat import ...`.

The arguments, shapes and order of results are those of Meta's `sam2` package, and so are the names
of modules: `from sam2.build_sam import build_sam2` becomes `from samgraph.compat.build_sam import
build_sam2`. What is a tensor there is a numpy array with a tensor's methods here; torch is not
needed. `install()` makes `import sam2` find these modules, for programs that cannot be edited.

`samgraph.compat.transformers` and `samgraph.compat.ultralytics` do the same for those libraries.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samgraph.compat.automatic_mask_generator import SAM2AutomaticMaskGenerator
    from samgraph.compat.build_sam import (
        build_sam2,
        build_sam2_hf,
        build_sam2_video_predictor,
        build_sam2_video_predictor_hf,
    )
    from samgraph.compat.installing import install, uninstall
    from samgraph.compat.sam2_image_predictor import SAM2ImagePredictor
    from samgraph.compat.sam2_video_predictor import SAM2VideoPredictor, SAM2VideoPredictorVOS

# Name, and the module of this package it lives in; imported when it is first used.
_NAMES = {
    "SAM2AutomaticMaskGenerator": "automatic_mask_generator",
    "SAM2ImagePredictor": "sam2_image_predictor",
    "SAM2VideoPredictor": "sam2_video_predictor",
    "SAM2VideoPredictorVOS": "sam2_video_predictor",
    "build_sam2": "build_sam",
    "build_sam2_hf": "build_sam",
    "build_sam2_video_predictor": "build_sam",
    "build_sam2_video_predictor_hf": "build_sam",
    "install": "installing",
    "uninstall": "installing",
}

__all__ = [
    "SAM2AutomaticMaskGenerator",
    "SAM2ImagePredictor",
    "SAM2VideoPredictor",
    "SAM2VideoPredictorVOS",
    "build_sam2",
    "build_sam2_hf",
    "build_sam2_video_predictor",
    "build_sam2_video_predictor_hf",
    "install",
    "uninstall",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module `samgraph.compat` has no `{name}`")
    return getattr(importlib.import_module(f"samgraph.compat.{_NAMES[name]}"), name)
