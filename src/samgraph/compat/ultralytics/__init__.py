"""SAM 2 as ultralytics calls it: `from samgraph.compat.ultralytics import SAM`.

    model = SAM("sam2.1_b.pt")
    results = model("bus.jpg", points=[900, 370], labels=[1])
    results[0].masks.xy, results[0].boxes.xyxy
    results[0].save("out.jpg")

Sources are paths of images, videos or folders, Pillow images, arrays in the order of OpenCV (blue,
green, red), or lists of them. Without a prompt, everything in the image is segmented. A video given
to `SAM` is segmented frame by frame with the same prompts; `SAM2VideoPredictor` tracks;
`SAM2Predictor`, or `Predictor`, takes prompts on an image that is set once. The names can also be
imported from `samgraph.compat.ultralytics.models.sam`.

Differs from the original: addresses are not fetched; released weights are Meta's, downloaded once
and checked; `boxes.conf` is the model's score of each mask. `samgraph-nano` is a model, too.
"""

from typing import Any

from samgraph.compat.ultralytics.model import SAM, SAM2VideoPredictor
from samgraph.compat.ultralytics.predictor import SAM2Predictor
from samgraph.compat.ultralytics.results import Boxes, Masks, Results

Predictor = SAM2Predictor

__all__ = [
    "SAM",
    "Boxes",
    "Masks",
    "Predictor",
    "Results",
    "SAM2Predictor",
    "SAM2VideoPredictor",
]

_DETECTOR = "there is no detector here; give a detector's boxes as `bboxes`"
# Names of the library that are not here, and why.
_ABSENT = {
    "YOLO": _DETECTOR,
    "FastSAM": _DETECTOR,
    "ASSETS": "no images are delivered; give your own",
    "SAM2DynamicInteractivePredictor": "`samgraph.load().stream()` takes new objects at any frame",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:  # not an AttributeError: `from ... import` would hide its text
        raise ImportError(f"`{name}` is not in samgraph.compat.ultralytics: {_ABSENT[name]}")
    raise AttributeError(f"module `samgraph.compat.ultralytics` has no `{name}`")
