"""Weights stored in fewer bits: file size, and how far embedding and masks are from float32.

    python benchmarks/weights.py [--model NAME] [--points 6]

Prints a line per precision: megabytes, relative error of the embedding, and the IoU of the masks of
a grid of clicks with those of the weights as loaded, on the photographs of `docs/media`.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import samgraph

PHOTOGRAPHS = sorted((Path(__file__).resolve().parents[1] / "docs" / "media").glob("c*.jpg"))
PRECISIONS = ("fp32", "fp16", "bf16", "int8")


def look(model: samgraph.Model, points: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Embeddings of the photographs, and the masks of a grid of clicks on each."""
    embeddings, masks = [], []
    for path in PHOTOGRAPHS:
        image = model.image(path)
        embeddings.append(np.asarray(image.embedding.features.maps["embedding"]))
        height, width = image.size_hw
        shares = np.linspace(0.1, 0.9, points)
        clicks = [(x * width, y * height) for y in shares for x in shares]
        masks += [image.predict(points=[at], multimask=False).masks[0] for at in clicks]
    return embeddings, masks


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """IoU of two masks; 1 if both are empty."""
    union = np.logical_or(a, b).sum()
    return float(np.logical_and(a, b).sum() / union) if union else 1.0


def main() -> None:
    """Write the model in every precision, load it again and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a name or a file; the built-in model if omitted")
    parser.add_argument("--points", type=int, default=6, help="clicks per side of the grid")
    given = parser.parse_args()
    model = samgraph.load(given.model)
    exact, wanted = look(model, given.points)
    print(f"{model.config.name}, {len(wanted)} clicks on {len(PHOTOGRAPHS)} photographs")
    for precision in PRECISIONS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.safetensors"
            model.save(path, precision)
            embeddings, found = look(samgraph.load(path), given.points)
            size = path.stat().st_size / 1e6
        errors = [
            np.linalg.norm(a - b) / np.linalg.norm(b)
            for a, b in zip(embeddings, exact, strict=True)
        ]
        ious = [overlap(a, b) for a, b in zip(found, wanted, strict=True)]
        print(
            f"{precision:>5}: {size:7.1f} MB, embedding {100 * max(errors):.2f} % off, "
            f"IoU {np.mean(ious):.4f} on average, {np.percentile(ious, 5):.3f} at the 5th "
            f"percentile, {min(ious):.3f} at worst"
        )


if __name__ == "__main__":
    main()
