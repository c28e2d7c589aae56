"""Run in a child process by `test_bf16.py`: the built-in model in bf16 beside float32.

Prints a JSON object: how far the embedding of each picture is off, and the IoU of the masks that
both models give for the same clicks, and of an object tracked through a drawn clip.
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image

import samgraph
from samgraph.engines.openvino import bf16
from samgraph.graph.types import Array
from samgraph.runtime import CompileOptions
from tests.e2e.scenes import clip, scene

MEDIA = Path(__file__).resolve().parents[3] / "docs" / "media"
CLICKS: dict[
    str, list[tuple[float, float]]
] = {  # on what has an edge: both models are sure of the object
    "chelsea.jpg": [(220, 150), (160, 120), (310, 205), (100, 230)],
    "coffee.jpg": [(290, 190), (200, 250), (330, 330), (120, 60)],
}
FRAMES = 5


def iou(a: Array, b: Array) -> float:
    """Of two masks; 1 if both are empty."""
    union = np.count_nonzero(a | b)
    return np.count_nonzero(a & b) / union if union else 1.0


def middle(mask: Array) -> tuple[float, float]:
    """The mean (x, y) of a mask's pixels."""
    y, x = np.argwhere(mask).mean(0)
    return float(x), float(y)


def pictures() -> dict[str, tuple[Array, list[tuple[float, float]]]]:
    """Photographs and drawn scenes, each with its clicks."""
    found = {
        name: (np.asarray(Image.open(MEDIA / name).convert("RGB")), clicks)
        for name, clicks in CLICKS.items()
    }
    for seed in (1, 2):
        pixels, masks = scene(seed)
        found[f"scene {seed}"] = (pixels, [middle(mask) for mask in masks])
    return found


def main() -> None:
    bf16._probe = lambda: 2.0  # whatever the gain is here
    full, half = (
        samgraph.load(options=CompileOptions(precision=p, cache=False)) for p in ("fp32", "bf16")
    )
    errors: dict[str, float] = {}
    overlaps: dict[str, float] = {}
    for name, (pixels, clicks) in pictures().items():
        images = [model.image(pixels) for model in (full, half)]
        maps = [np.asarray(image.embedding.features.maps["embedding"]) for image in images]
        errors[name] = float(np.linalg.norm(maps[1] - maps[0]) / np.linalg.norm(maps[0]))
        for number, click in enumerate(clicks):
            masks = [image.predict(points=[click], labels=[1]).mask for image in images]
            overlaps[f"{name} {number}"] = iou(*masks)
    tracked = [track(model) for model in (full, half)]
    frames = [iou(*pair) for pair in zip(*tracked, strict=True)]
    print(json.dumps({"errors": errors, "overlaps": overlaps, "tracked": frames}))


def track(model: samgraph.Model) -> list[Array]:
    """The masks of a drawn star, clicked on once."""
    frames, _ = clip(3, FRAMES)
    video = model.video(frames)
    video.add(frame=0, object=1, points=[(70, 230)])
    return [np.asarray(frame.masks[0]) for frame in video.track()]


if __name__ == "__main__":
    main()
