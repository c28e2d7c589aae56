"""The weights training starts from: MobileSAM's trunk, and a trained model's decoder and memory.

    python -m training.start DATA OLD.safetensors START.safetensors

OLD is the samgraph-nano with a Hiera trunk, as it was released before. What follows the image
encoder is taken from it, and the last 1x1 convolutions of the new encoder are fitted by least
squares so that its maps are like OLD's: decoder and memory work from the first step on.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from samgraph import checkpoint
from samgraph.engines.torch import Evaluator
from samgraph.graph import Array, Builder, Graph
from samgraph.models.nano.config import NANO
from samgraph.models.nano.graphs import GRAPHS
from samgraph.models.nano.tinyvit import tinyvit
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.layers import conv2d, layer_norm_2d
from training import data, teacher
from training.export import STEEPER, steeper
from training.scenes import normalised
from training.student import first_weights

HIERA = Sam2Config(
    name="samgraph-nano-hiera",
    image_size=512,
    embed_dim=48,
    stages=(1, 2, 7, 1),
    global_blocks=(5, 7, 9),
    windows=(8, 4, 16, 8),
    memory_layers=2,
    memory_feedforward=512,
    fuser_layers=1,
)
PICTURES, BATCH, RIDGE = 240, 8, 1e-3
# maps of the new encoder before their last convolution -> that convolution, and OLD's map
FITTED = {
    "last": ("image_encoder.neck.4", "embedding"),
    "fine": ("sam_mask_decoder.conv_s0", "fine_0"),
    "middle": ("sam_mask_decoder.conv_s1", "fine_1"),
}


def start(folder: Path, old: Path, seed: int = 0, pictures: int = PICTURES) -> dict[str, Array]:
    """The weights of a new model."""
    taught = teacher.read(folder / "mobile_sam.pt")
    before = {name: np.asarray(a, np.float32) for name, a in checkpoint.read(old).tensors.items()}
    before = steeper(before, 1 / STEEPER)
    weights = first_weights(NANO, taught, seed)
    weights |= {name: array for name, array in before.items() if name in weights}
    for key, (weight, bias) in fitted(folder, taught, before, pictures, seed).items():
        weights[f"{key}.weight"], weights[f"{key}.bias"] = weight[:, :, None, None], bias
    return weights


def fitted(
    folder: Path, taught: Mapping[str, Array], before: Mapping[str, Array], count: int, seed: int
) -> dict[str, tuple[Array, Array]]:
    """The weight [out, in] and bias of each convolution of `FITTED`, by least squares."""
    own = first_weights(NANO, taught, seed)
    new = Evaluator(bare_encoder(), "fp32")
    hiera = Evaluator(graphs.image_encoder(HIERA), "fp32")
    own_tensors, old_tensors = (
        {name: torch.from_numpy(np.array(a)) for name, a in some.items()} for some in (own, before)
    )
    sums: dict[str, list[torch.Tensor]] = {}
    for images in some_pictures(folder, count, seed).split(BATCH):
        x = normalised(images.float() / 255)
        with torch.no_grad():
            seen = new({**own_tensors, "image": x})
            wanted = hiera({**old_tensors, "image": x})
        for name, (key, target) in FITTED.items():
            a, b = (v.transpose(0, 1).flatten(1).double() for v in (seen[name], wanted[target]))
            a = torch.cat([a, torch.ones_like(a[:1])])
            parts = [a @ a.T, a @ b.T, (b * b).sum(1), b.sum(1), torch.tensor(float(b.shape[1]))]
            sums[key] = (
                [x + y for x, y in zip(sums[key], parts, strict=True)] if key in sums else parts
            )
    found = {}
    for key, (aa, ab, bb, b, n) in sums.items():
        solved = torch.linalg.solve(aa + RIDGE * n * torch.eye(len(aa)), ab)
        error = bb - 2 * (solved * ab).sum(0) + (solved * (aa @ solved)).sum(0)
        explained = 1 - error.sum() / (bb - b * b / n).sum()
        print(f"{key}: {explained:.3f} of the variance")  # noqa: T201 (a script)
        found[key] = solved[:-1].T.float().numpy().copy(), solved[-1].float().numpy().copy()
    return found


def bare_encoder() -> Graph:
    """The new encoder without its last convolutions."""
    builder, S = Builder("bare_encoder"), NANO.image_size
    image, at = builder.input("image", f"f32[B,3,{S},{S}]"), builder.scope() / "image_encoder"
    maps, neck = tinyvit(at / "trunk", NANO.trunk, image), at / "neck"
    x = layer_norm_2d(neck / 1, conv2d(neck / 0, maps.last, NANO.channels, 1, bias=False))
    x = conv2d(neck / 2, x, NANO.channels, 3, padding=1, bias=False)
    return builder.finish(last=layer_norm_2d(neck / 3, x), fine=maps.fine, middle=maps.middle)


def some_pictures(folder: Path, count: int, seed: int) -> torch.Tensor:
    """Pictures to fit on: uint8 [n, 3, SIDE, SIDE]."""
    pets = data.read_pets(folder, held_out=False, limit=count // 3)
    clips = data.clip_photos(data.read_clips(folder, split="train"))
    photos = [pets, clips] + (
        [data.read_photos(folder)] if (folder / "photos.tar").exists() else []
    )
    random = torch.Generator().manual_seed(seed)
    parts = [
        p.images[torch.randperm(len(p.images), generator=random)[: count // 3]] for p in photos
    ]
    return torch.cat(parts)


def main() -> None:
    """Write the weights, as a model that is not trained yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("old", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    weights = start(given.data, given.old)
    assert {name: a.shape for name, a in weights.items()} == GRAPHS.weight_shapes(NANO)
    metadata = {"samgraph.config": NANO.to_json(), "samgraph.family": "nano", "format": "pt"}
    checkpoint.save(given.out, steeper(weights, STEEPER), precision="fp32", metadata=metadata)


if __name__ == "__main__":
    main()
