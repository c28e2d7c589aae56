"""SAM 2 from exported ONNX files, without samgraph: clicks on an image, objects through a video.

Needs onnxruntime, numpy and pillow, and a folder written by `samgraph export --to onnx FOLDER`:

    python sam2.py FOLDER photo.jpg mask.png 210,150
    python sam2.py FOLDER frames/ masks/ 210,150 2:80,60 210,190,0@12

A click is X,Y; before it may stand the object (`2:`), after it the label (`,0`: not this) and the
number of the frame (`@12`), where it corrects what was tracked. Masks of a video are pictures with
the number of the object in every pixel.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

Arrays = dict[str, np.ndarray]
_CLICK = re.compile(r"(?:(\d+):)?([\d.]+),([\d.]+)(?:,([01]))?(?:@(\d+))?")


class Sam2:
    """The graphs of a folder, each loaded when it is first run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        self.constants, self.graphs = self.manifest["constants"], self.manifest["graphs"]
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}

    def run(self, graph: str, inputs: Arrays) -> Arrays:
        """Run a graph of the manifest: named arrays in, named arrays out."""
        if graph not in self._sessions:
            path = self.folder / self.graphs[graph]["file"]
            self._sessions[graph] = onnxruntime.InferenceSession(path)
        session = self._sessions[graph]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))

    def encode(self, picture: Image.Image, *, is_frame: bool = False) -> Arrays:
        """The features of an image, or of a frame of a video."""
        rules, picture = self.manifest["preprocessing"], picture.convert("RGB")
        size = tuple(rules["size"][::-1])
        if is_frame:
            pixels = np.asarray(picture.resize(size, Image.Resampling.BICUBIC), np.float32)
        else:  # in floats, channel by channel
            channels = np.asarray(picture, np.float32).transpose(2, 0, 1)
            how = Image.Resampling.BILINEAR
            small = [np.asarray(Image.fromarray(one).resize(size, how)) for one in channels]
            pixels = np.stack(small, axis=-1)
        pixels = (pixels / 255 - np.float32(rules["mean"])) / np.float32(rules["std"])
        return self.run("image_encoder", {"image": pixels.transpose(2, 0, 1)[None]})

    def points(self, clicks: list[tuple[float, float]], picture: Image.Image) -> np.ndarray:
        """Clicks in pixels of a picture, as the model takes them: [1, P, 2]."""
        scale = self.constants["image_size"] / np.array(picture.size)
        return (np.array([clicks]) * scale).astype(np.float32)

    def segment(
        self, picture: Image.Image, clicks: list[tuple[float, float]], labels: list[int]
    ) -> np.ndarray:
        """The mask of clicks on an image, the likeliest of three for a single one: bool [H, W]."""
        inputs = {"points": self.points(clicks, picture), "labels": np.array([labels])}
        found = self.run("decode_points", {**self.encode(picture), **inputs})
        ious, first = found["ious"][0], found["stability"][0, 0]
        is_clear = len(clicks) > 1 and first >= self.constants["stability_wanted"]
        best = 0 if is_clear else 1 + int(ious[1:].argmax())
        return as_mask(found["masks"][0, best], picture)


@dataclass
class Tracked:
    """One object: its clicks by frame, and (memory, pointer) of frames."""

    clicks: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    labels: dict[int, list[int]] = field(default_factory=dict)
    prompted: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    tracked: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    latest: tuple[int, np.ndarray] = (-1, np.zeros(0))  # frame, and the logits found there


class Tracker:
    """Objects followed through frames given in order; of how many, if that is known."""

    def __init__(self, model: Sam2, frames: int | None = None) -> None:
        self.model, self.now = model, -1
        self.objects: dict[int, Tracked] = {}
        self.slots, self.reach = (model.constants[k] for k in ("memory_frames", "max_pointers"))
        if frames is not None:
            self.reach = min(frames, self.reach)

    def step(self, frame: Image.Image) -> dict[int, np.ndarray]:
        """Objects on the next frame, those with memories of equal length in one run."""
        self.now += 1
        self.frame, self.features = frame, self.model.encode(frame, is_frame=True)
        groups: dict[tuple[int, int], list[tuple[Tracked, Arrays]]] = {}
        for obj in self.objects.values():
            read = self._memories(obj)
            groups.setdefault((read["slots"].size, read["pointer_times"].size), []).append(
                (obj, read)
            )
        for group in groups.values():
            reads = [read for _, read in group]
            inputs = {name: np.concatenate([r[name] for r in reads]) for name in reads[0]}
            found = self.model.run(self._named("track", inputs), {**self.features, **inputs})
            for i, (obj, _) in enumerate(group):
                obj.latest = self.now, found["best_mask"][i : i + 1]
                pointer = found["pointer"][i : i + 1]
                obj.tracked[self.now] = found["new_memory"][i : i + 1], pointer
                obj.tracked.pop(self.now - self.reach, None)
        return {name: self._mask(obj) for name, obj in self.objects.items()}

    def click(self, name: int, x: float, y: float, label: int = 1) -> np.ndarray:
        """The mask of an object, new or tracked, after a click on the present frame."""
        obj, now = self.objects.setdefault(name, Tracked()), self.now
        clicks = obj.clicks.setdefault(now, [])
        clicks.append((x, y))
        labels = obj.labels.setdefault(now, [])
        labels.append(label)
        obj.prompted.pop(now, None)
        is_found, is_known = obj.latest[0] == now, bool(obj.prompted)
        side, clamp = (self.model.constants[k] for k in ("mask_size", "mask_prompt_clamp"))
        before = obj.latest[1] if is_found else np.zeros((1, 1, side, side), np.float32)
        features = dict(self.features)
        if is_known:
            read = self._memories(obj)
            inputs = {"embedding": features["embedding"], **read}
            graph = self._named("memory_attention", read)
            features["embedding"] = self.model.run(graph, inputs)["conditioned"]
        prompt = {
            "points": self.model.points(clicks, self.frame),
            "labels": np.array([labels], np.int64),
            "mask": before.clip(-clamp, clamp),
            "has_mask": np.array([is_found]),
            "no_memory": np.array([not is_known]),
            "multimask": np.array([len(clicks) == 1]),
        }
        found = self.model.run("decode", {**features, **prompt})
        obj.latest = now, found["best_mask"]
        remembered = {
            "embedding": self.features["embedding"],
            "mask": found["best_mask"],
            "object_score": found["object_score"],
            "binary": np.array([True]),
        }
        memory = self.model.run("memory_encoder", remembered)["memory"]
        obj.prompted[now] = memory, found["pointer"]
        obj.tracked.pop(now, None)
        return self._mask(obj)

    def _memories(self, obj: Tracked) -> Arrays:
        """What an object remembers on this frame, as inputs of `track`."""
        now, tracked = self.now, obj.tracked
        masks = [(memory, self.slots - 1) for memory, _ in obj.prompted.values()]
        near = [d for d in range(self.slots - 1, 0, -1) if now - d in tracked]
        masks += [(tracked[now - d][0], d - 1) for d in near]
        pointers = [(pointer, now - frame) for frame, (_, pointer) in obj.prompted.items()]
        near = [d for d in range(1, self.reach) if now - d in tracked]
        pointers += [(tracked[now - d][1], d) for d in near]
        times = np.array([[distance for _, distance in pointers]], np.float32)
        return {
            "memory": np.stack([memory for memory, _ in masks], 1),
            "slots": np.array([[slot for _, slot in masks]]),
            "pointers": np.stack([pointer for pointer, _ in pointers], 1),
            "pointer_times": times / max(self.reach - 1, 1),
        }

    def _named(self, graph: str, read: Arrays) -> str:
        """The graph; some models have another for a single remembered frame."""
        one = f"{graph}_one"
        return one if read["slots"].shape[1] == 1 and one in self.model.graphs else graph

    def _mask(self, obj: Tracked) -> np.ndarray:
        return as_mask(obj.latest[1][0, 0], self.frame)


def as_mask(logits: np.ndarray, picture: Image.Image) -> np.ndarray:
    """Low-resolution logits as a mask at the size of a picture: bool [H, W]."""
    for axis, length in enumerate(picture.size[::-1]):  # bilinear, half-pixel centres
        side = logits.shape[axis]
        at = ((np.arange(length) + 0.5) * side / length - 0.5).clip(0, side - 1)
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1, 1] if axis == 0 else [1, -1])
        high = np.minimum(low + 1, side - 1)
        logits = logits.take(low, axis) * (1 - share) + logits.take(high, axis) * share
    return logits > 0


def read_clicks(texts: list[str]) -> list[tuple[int, int, float, float, int]]:
    """Clicks as (frame, object, x, y, label), in the order of frames."""
    found = []
    for text in texts:
        match = _CLICK.fullmatch(text)
        if match is None:
            sys.exit(f"error: `{text}` is no click; expected [OBJECT:]X,Y[,LABEL][@FRAME]")
        name, x, y, label, frame = match.groups()
        found.append((int(frame or 0), int(name or 1), float(x), float(y), int(label or 1)))
    return sorted(found, key=lambda click: click[0])


def main(folder: str, source: str, target: str, *texts: str) -> None:
    """A mask of a picture, or of every frame in a folder."""
    model, clicks = Sam2(Path(folder)), read_clicks(list(texts))
    if not Path(source).is_dir():
        points, labels = [(x, y) for _, _, x, y, _ in clicks], [label for *_, label in clicks]
        mask = model.segment(Image.open(source), points, labels)
        Image.fromarray(mask.astype(np.uint8) * 255).save(target)
        return
    Path(target).mkdir(exist_ok=True)
    paths = sorted(Path(source).iterdir())
    tracker = Tracker(model, len(paths))
    for index, path in enumerate(paths):
        masks = tracker.step(Image.open(path))
        for frame, name, x, y, label in clicks:
            if frame == index:
                masks[name] = tracker.click(name, x, y, label)
        numbers = np.zeros(tracker.frame.size[::-1], np.uint8)
        for name, mask in masks.items():
            numbers[mask] = name
        Image.fromarray(numbers).save(Path(target) / f"{path.stem}.png")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit("usage: sam2.py FOLDER PICTURE|FRAMES TARGET CLICK...")
    main(*sys.argv[1:])
