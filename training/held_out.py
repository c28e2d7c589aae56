"""What was never trained on, as folders that `samgraph eval` reads; needs no torch.

    python -m training.held_out DATA OUT
    samgraph eval images OUT/pets
    samgraph eval davis OUT/clips

The masks of the clips are the teacher's answers to the boxes and points of `labels/clips.json`,
every one of which was looked at.
"""

import argparse
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from samgraph.media.image.preprocess import MEAN, STD
from samgraph.runtime import CompileOptions, Session
from training import teacher
from training.manifest import check
from training.split import is_held_out

HERE = Path(__file__).parent
IGNORED = 255
GROW = 4  # pixels around the box in which a mask may lie


def write_pets(data: Path, out: Path) -> None:
    """Photographs and masks; the edge between animal and background is not counted."""
    for kind in ("images", "masks"):
        (out / kind).mkdir(parents=True, exist_ok=True)
    for part in ("pets-0.tar", "pets-1.tar"):
        with tarfile.open(data / part) as archive:
            for member in archive:
                name = Path(member.name)
                if not member.isfile() or not is_held_out(member.name):
                    continue
                content = _content(archive, member)
                if name.suffix == ".jpg":
                    (out / "images" / name.name).write_bytes(content)
                else:
                    trimap = np.asarray(Image.open(io.BytesIO(content)))
                    labels = np.select([trimap == 1, trimap == 3], [1, IGNORED]).astype(np.uint8)
                    Image.fromarray(labels).save(out / "masks" / name.name)


def write_clips(data: Path, out: Path) -> None:
    """Frames and annotations in the layout of DAVIS."""
    labels = json.loads((HERE / "labels" / "clips.json").read_text())
    drawn = Drawn(data / "mobile_sam.pt")
    with tarfile.open(data / "clips.tar") as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if not member.isfile():
                continue
            _, clip, file = member.name.split("/")
            if labels[clip]["split"] != "held-out":
                continue
            content, stem = _content(archive, member), Path(file).stem
            frame = out / "JPEGImages" / clip / file
            frame.parent.mkdir(parents=True, exist_ok=True)
            frame.write_bytes(content)
            things = {
                int(number): thing["frames"][str(int(stem))]
                for number, thing in labels[clip]["objects"].items()
                if str(int(stem)) in thing["frames"]
            }
            if things:
                annotation = out / "Annotations" / clip / f"{stem}.png"
                annotation.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(drawn.labels(content, things)).save(annotation)


class Drawn:
    """Masks as the teacher draws them for a box and points, on the CPU."""

    def __init__(self, path: Path) -> None:
        weights = teacher.read(path)
        session = Session("cpu", CompileOptions())
        self._encode, self._decode = (
            session.compile(graph, {value.name: weights[value.name] for value in graph.params})
            for graph in (teacher.encode_graph(), teacher.decode_graph())
        )

    def labels(self, content: bytes, things: dict[int, dict[str, Any]]) -> NDArray[np.uint8]:
        """Objects by number, later numbers on top."""
        image = Image.open(io.BytesIO(content)).convert("RGB")
        side = teacher.CONFIG.image_size
        pixels = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC), np.float32)
        ready = ((pixels / 255 - MEAN) / STD).transpose(2, 0, 1)[None].astype(np.float32)
        embedding = self._encode.run({"image": ready})["embedding"]
        found = np.zeros((image.height, image.width), np.uint8)
        for number, thing in sorted(things.items()):
            if not thing.get("absent"):
                found[self._mask(embedding, image.size, thing)] = number
        return found

    def _mask(
        self, embedding: NDArray[Any], size: tuple[int, int], thing: dict[str, Any]
    ) -> NDArray[np.bool_]:
        side, small = teacher.CONFIG.image_size, teacher.CONFIG.mask_size
        clicks = np.array(thing.get("points") or np.zeros((0, 3)), np.float32).reshape(-1, 3)
        box = np.array(thing["box"], np.float32).reshape(2, 2)
        xy = np.concatenate([box, clicks[:, :2]]) * (side / np.array(size, np.float32))
        answer = self._decode.run(
            {
                "embedding": embedding,
                "points": xy[None].astype(np.float32),
                "labels": np.concatenate([[2, 3], clicks[:, 2]]).astype(np.int64)[None],
                "mask": np.zeros((1, 1, small, small), np.float32),
                "has_mask": np.array([False]),
            }
        )
        logits = Image.fromarray(answer["masks"][0, 0]).resize(size, Image.Resampling.BILINEAR)
        mask = np.asarray(logits) > 0
        (left, top), (right, bottom) = np.rint(box).astype(int)
        near = np.zeros_like(mask)
        near[max(0, top - GROW) : bottom + GROW, max(0, left - GROW) : right + GROW] = True
        return np.asarray(mask & near)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    return stream.read() if stream else b""


def main() -> None:
    """Write both folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    check(given.data)
    write_pets(given.data, given.out / "pets")
    write_clips(given.data, given.out / "clips")


if __name__ == "__main__":
    main()
