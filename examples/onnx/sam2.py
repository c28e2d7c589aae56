"""SAM 2 from exported ONNX files, without samgraph: a click on an image, objects through a video.

Needs onnxruntime, numpy and pillow, and a folder written by `samgraph export --to onnx FOLDER`:

    python sam2.py FOLDER photo.jpg 210,150 mask.png
    python sam2.py FOLDER frames/ 210,150 masks/         a folder of frames, clicked on the first
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

Arrays = dict[str, np.ndarray]
FEATURES = ("embedding", "fine_0", "fine_1")


class Sam2:
    """The graphs of a folder, each loaded when it is first run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        self.constants = self.manifest["constants"]
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}

    def run(self, graph: str, inputs: Arrays) -> Arrays:
        """Run a graph of the manifest: named arrays in, named arrays out."""
        if graph not in self._sessions:
            path = self.folder / self.manifest["graphs"][graph]["file"]
            self._sessions[graph] = onnxruntime.InferenceSession(path)
        session = self._sessions[graph]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))

    def encode(self, image: Image.Image) -> Arrays:
        """The features of an image or frame."""
        rules = self.manifest["preprocessing"]
        small = image.convert("RGB").resize(rules["size"][::-1], Image.Resampling.BICUBIC)
        pixels = np.asarray(small, np.float32) / 255
        pixels = (pixels - np.float32(rules["mean"])) / np.float32(rules["std"])
        return self.run("image_encoder", {"image": pixels.transpose(2, 0, 1)[None]})

    def points(self, clicks: list[tuple[float, float]], image: Image.Image) -> np.ndarray:
        """Clicks in pixels of an image, as the model takes them: [1, P, 2]."""
        scale = self.constants["image_size"] / np.array(image.size)
        return (np.array([clicks]) * scale).astype(np.float32)

    def click(self, image: Image.Image, clicks: list[tuple[float, float]]) -> np.ndarray:
        """The most likely mask of positive clicks on an image: bool [H, W]."""
        features = self.encode(image)
        labels = np.ones((1, len(clicks)), np.int64)
        inputs = {**features, "points": self.points(clicks, image), "labels": labels}
        found = self.run("decode_points", inputs)
        best = 1 + int(found["ious"][0, 1:].argmax())
        return as_mask(found["masks"][0, best], image)


class Tracker:
    """One object followed through a video of so many frames, if that is known."""

    def __init__(
        self,
        model: Sam2,
        frame: Image.Image,
        clicks: list[tuple[float, float]],
        frames: int | None = None,
    ) -> None:
        self.model, self.index = model, 0
        constants = model.constants
        self.slots, self.reach = constants["memory_frames"], constants["max_pointers"]
        if frames is not None:
            self.reach = min(frames, self.reach)
        side = constants["mask_size"]
        features = model.encode(frame)
        inputs = {
            **features,
            "points": model.points(clicks, frame),
            "labels": np.ones((1, len(clicks)), np.int64),
            "mask": np.zeros((1, 1, side, side), np.float32),
            "has_mask": np.array([False]),
            "no_memory": np.array([True]),
            "multimask": np.array([len(clicks) == 1]),
        }
        found = model.run("decode", inputs)
        remembered = {
            "embedding": features["embedding"],
            "mask": found["best_mask"],
            "object_score": found["object_score"],
            "binary": np.array([True]),
        }
        memory = model.run("memory_encoder", remembered)["memory"]
        self.prompted = (memory, found["pointer"])
        self.tracked: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.mask = as_mask(found["best_mask"][0, 0], frame)

    def step(self, frame: Image.Image) -> np.ndarray:
        """The mask of the object on the next frame: bool [H, W]."""
        self.index += 1
        model, now = self.model, self.index
        memories, slots = [self.prompted[0]], [self.slots - 1]
        for distance in range(self.slots - 1, 0, -1):
            if now - distance in self.tracked:
                memories.append(self.tracked[now - distance][0])
                slots.append(distance - 1)
        pointers, times = [self.prompted[1]], [now]
        for distance in range(1, self.reach):
            if now - distance in self.tracked:
                pointers.append(self.tracked[now - distance][1])
                times.append(distance)
        features = model.encode(frame)
        inputs = {
            **{name: features[name] for name in FEATURES},
            "memory": np.stack(memories, 1),
            "slots": np.array([slots]),
            "pointers": np.stack(pointers, 1),
            "pointer_times": np.array([times], np.float32) / max(self.reach - 1, 1),
        }
        found = model.run("track", inputs)
        self.tracked[now] = (found["new_memory"], found["pointer"])
        self.tracked.pop(now - self.reach, None)
        self.mask = as_mask(found["best_mask"][0, 0], frame)
        return self.mask


def as_mask(logits: np.ndarray, image: Image.Image) -> np.ndarray:
    """Low-resolution logits as a mask at the size of the image."""
    large = Image.fromarray(logits.astype(np.float32)).resize(image.size, Image.Resampling.BILINEAR)
    return np.asarray(large) > 0


def save(mask: np.ndarray, path: Path) -> None:
    """Write a mask as a black and white picture."""
    Image.fromarray(mask.astype(np.uint8) * 255).save(path)


def main(folder: str, source: str, click: str, target: str) -> None:
    """A mask of a picture, or of every frame in a folder."""
    model, where = Sam2(Path(folder)), [tuple(map(float, click.split(",")))]
    if not Path(source).is_dir():
        save(model.click(Image.open(source), where), Path(target))
        return
    Path(target).mkdir(exist_ok=True)
    first, *others = sorted(Path(source).iterdir())
    tracker = Tracker(model, Image.open(first), where, 1 + len(others))
    save(tracker.mask, Path(target) / f"{first.stem}.png")
    for path in others:
        save(tracker.step(Image.open(path)), Path(target) / f"{path.stem}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
