"""What the teacher says of pictures: its embedding, and masks of whatever it sees in them.

The student has half the teacher's resolution: it learns to see embeddings averaged 2 x 2. Masks
are drawn from the whole embedding, twice as fine as the student's, and averaged.

Shapes: n pictures, G masks of a picture, Q points asked about.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch.nn import functional

from samgraph.engines.torch import Evaluator
from samgraph.graph import Array
from training import teacher
from training.data import SIDE, Clips, Prompt, Track
from training.prompting import ABSENT
from training.scenes import MASK, Scenes, normalised

Asked = Literal["embedding", "masks"]
ASKED = 16
KEPT = 10
NEAR = 2  # pixels of MASK x MASK by which a mask may leave the box it was asked for


class Teacher:
    """MobileSAM on a device."""

    def __init__(self, weights: Mapping[str, Array], device: str, size: int = 1024) -> None:
        self.weights = {name: torch.from_numpy(array).to(device) for name, array in weights.items()}
        self.size = size
        self._encode = Evaluator(teacher.encode_graph(size), "bf16" if device == "cuda" else "fp32")
        self._decode = Evaluator(teacher.decode_graph(), "fp32")

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        """Bytes [n, 3, SIDE, SIDE] -> embeddings [n, 256, 64, 64]."""
        x = functional.interpolate(
            images.float() / 255, self.size, mode="bilinear", align_corners=False
        )
        with torch.no_grad():
            found = self._encode({**self.weights, "image": normalised(x.clamp(0, 1))})["embedding"]
        return functional.adaptive_avg_pool2d(found, teacher.CONFIG.image_size // 16)

    def decode(
        self,
        embedding: torch.Tensor,
        points: torch.Tensor,
        labels: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Masks [N, 4, MASK, MASK] and ious [N, 4] for prompts in pixels of SIDE x SIDE."""
        N, fine = len(points), teacher.CONFIG.mask_size
        if mask is None:
            mask, has_mask = points.new_zeros(N, 1, fine, fine), False
        else:
            mask, has_mask = functional.interpolate(mask, fine, mode="bilinear"), True
        given = {
            "points": (points + 0.5) * (fine / MASK) - 0.5,
            "labels": labels,
            "mask": mask,
            "has_mask": torch.full((N,), has_mask, device=points.device),
        }
        with torch.no_grad():
            found = self._decode({**self.weights, "embedding": embedding, **given})
        return {**found, "masks": functional.avg_pool2d(found["masks"], fine // MASK)}

    def masks(self, embedding: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Coverage [n, G, MASK, MASK] of what is at points [n, Q, 2]; good ones, no two alike."""
        n, Q, _ = points.shape
        xy = torch.cat([points.reshape(n * Q, 1, 2), points.new_zeros(n * Q, 1, 2)], 1)
        labels = torch.tensor([[1, -1]], device=points.device).expand(n * Q, 2)
        found = self.decode(embedding.repeat_interleave(Q, 0), xy, labels.contiguous())
        logits, score = found["masks"][:, 1:], found["ious"][:, 1:].reshape(n, 3 * Q)
        logits = logits.reshape(n, 3 * Q, MASK, MASK)
        inner, outer = ((logits > limit).sum((2, 3)) for limit in (1.0, -1.0))
        area = (logits > 0).float().mean((2, 3))
        good = (score > 0.75) & (inner > 0.85 * outer) & (area > 0.003) & (area < 0.8)
        chosen = _apart((logits > 0).flatten(2).float(), good)
        order = chosen.float().topk(min(KEPT, 3 * Q), 1)
        picked = logits.gather(1, order.indices[:, :, None, None].expand(-1, -1, MASK, MASK))
        return torch.sigmoid(4 * picked) * order.values[:, :, None, None]


def _apart(masks: torch.Tensor, good: torch.Tensor) -> torch.Tensor:
    """Which masks [n, G, pixels] to keep so that no two are nearly the same."""
    both = masks @ masks.mT
    area = both.diagonal(dim1=1, dim2=2)
    alike = both / (area[:, :, None] + area[:, None] - both).clamp(min=1) > 0.75
    kept = torch.zeros_like(good)
    for i in range(good.shape[1]):
        kept[:, i] = good[:, i] & ~(kept & alike[:, i]).any(1)
    return kept


class Pool:
    """Labelled pictures on the device, the oldest replaced by new ones."""

    def __init__(self, scenes: Scenes, teacher: Teacher, size: int) -> None:
        self.scenes, self.teacher, self.size = scenes, teacher, size
        self.filled = self._next = 0
        at = torch.device(scenes.device)
        self.images = torch.empty(size, 3, SIDE, SIDE, dtype=torch.uint8, device=at)
        self.embeddings = torch.empty(
            size, 256, SIDE // 16, SIDE // 16, dtype=torch.bfloat16, device=at
        )
        self.masks = torch.zeros(size, 2 * KEPT, MASK, MASK, dtype=torch.uint8, device=at)

    def add(self, count: int, *, ask: Asked) -> None:
        """Draw more pictures, and ask the teacher about them."""
        images, exact = self.scenes.views(count)
        known = exact
        places = (torch.arange(count, device=images.device) + self._next) % self.size
        embedding = self.teacher.encode(images)
        small = functional.adaptive_avg_pool2d(embedding, SIDE // 16)
        self.embeddings[places] = small.to(torch.bfloat16)
        if ask == "masks":
            points = self.scenes.uniform(0, SIDE, count, ASKED, 2)
            seen = self.teacher.masks(embedding, points)
            known = torch.cat([exact, (seen * 255).round().to(torch.uint8)], 1)
        known = functional.pad(known, (0, 0, 0, 0, 0, 2 * KEPT - known.shape[1]))
        self.images[places], self.masks[places] = images, known
        self._next = (self._next + count) % self.size
        self.filled = min(self.size, self.filled + count)

    def draw(self, count: int) -> torch.Tensor:
        """Numbers of random pictures."""
        return self.scenes.choose(self.filled, count)

    def some_masks(self, places: torch.Tensor, each: int) -> torch.Tensor:
        """Masks of pictures, worth asking about: coverage [n, each, MASK, MASK], 0..1."""
        masks = self.masks[places]
        area = masks.float().mean((2, 3)) / 255
        order = self.scenes.uniform(0, 1, *area.shape) + 2.0 * ((area > 0.003) & (area < 0.85))
        best = order.topk(each, 1).indices[:, :, None, None].expand(-1, -1, MASK, MASK)
        chosen: torch.Tensor = masks.gather(1, best).float() / 255
        return chosen


def label_track(clips: Clips, track: Track, taught: Teacher) -> torch.Tensor:
    """The masks of a labelled object, as the teacher draws them: uint8 [frames, MASK, MASK]."""
    device = next(iter(taught.weights.values())).device
    masks = torch.zeros(len(track.frames), MASK, MASK, device=device)
    seen = [i for i, prompt in enumerate(track.prompts) if prompt]
    pictures = clips.images[track.frames[seen]].to(device)
    embeddings = torch.cat([taught.encode(some) for some in pictures.split(16)])
    given = [track.prompts[i] for i in seen]
    masks[seen] = draw(taught, embeddings, given, clips.sizes[track.clip])[0]
    return (masks * 255).round().to(torch.uint8)


def draw(
    taught: Teacher, embeddings: torch.Tensor, prompts: list[Prompt], size: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """What boxes and points show, in pixels of frames of a size: [n, MASK, MASK], scores [n]."""
    given: list[Any] = [prompt.get("points") or [] for prompt in prompts]
    most = 1 + max(map(len, given))
    clicks = [points + [[0, 0, ABSENT]] * (most - len(points)) for points in given]
    boxes = [prompt["box"] for prompt in prompts]
    device = embeddings.device
    scale = torch.tensor([SIDE / size[0], SIDE / size[1]], device=device)
    corners = torch.tensor(boxes, device=device).float().reshape(-1, 2, 2)
    extra = torch.tensor(clicks, device=device).float()
    labels = torch.tensor([[2, 3]], device=device).expand(len(boxes), 2)
    found = taught.decode(
        embeddings,
        torch.cat([corners, extra[..., :2]], 1) * scale,
        torch.cat([labels, extra[..., 2].long()], 1),
    )
    near = _near(corners * scale * (MASK / SIDE))
    return torch.sigmoid(4 * found["masks"][:, 0]) * near, found["ious"][:, 0]


def _near(boxes: torch.Tensor) -> torch.Tensor:
    """1 in boxes [n, 2, 2] and a little around them: [n, MASK, MASK]."""
    step = torch.arange(MASK, device=boxes.device) + 0.5
    (left, top), (right, bottom) = ((side.T[:, :, None]) for side in boxes.unbind(1))
    across = (step > left - NEAR) & (step < right + NEAR)
    down = (step > top - NEAR) & (step < bottom + NEAR)
    near: torch.Tensor = (down[:, :, None] & across[:, None]).float()
    return near
