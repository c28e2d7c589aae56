"""What the teacher says of pictures: masks of whatever it sees in them.

The teacher is SAM 2 (Hiera tiny) at 1024 px; its masks are as fine as the student's.

Shapes: n pictures, G masks of a picture, Q points asked about.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from samgraph.engines.protocol import Precision
from samgraph.graph import Array
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.config import CONFIGS
from training.data import SIDE, Clips, Prompt, Track
from training.fixed import evaluator
from training.prompting import ABSENT
from training.scenes import MASK, Scenes, normalised
from training.solids import Solids
from training.student import Tensors

CONFIG = CONFIGS["sam2-tiny"]
FILE = "sam2_tiny.safetensors"
ASKED = 16
KEPT = 10
NEAR = 4  # pixels of MASK x MASK by which a mask may leave the box it was asked for
SOLID = 10  # one batch of pictures in so many is of drawn solids
CHAINS = 12  # batches of them that are kept with their parts and groups
STEEP = 2.0  # of the teacher's logits, to make coverage of them


class Teacher:
    """SAM 2 on a device."""

    def __init__(self, weights: Mapping[str, Array], device: str, size: int = 1024) -> None:
        self.device, self.config = torch.device(device), CONFIG.at_size(size)
        half: Precision = "bf16" if device == "cuda" else "fp32"
        self._encode = evaluator(graphs.image_encoder(self.config), weights, device, half)
        self._decode = evaluator(graphs.decode(self.config), weights, device)

    def encode(self, images: torch.Tensor) -> Tensors:
        """Bytes [n, 3, SIDE, SIDE] -> embedding, fine_0, fine_1."""
        x = functional.interpolate(
            images.float() / 255, self.config.image_size, mode="bilinear", align_corners=False
        )
        with torch.no_grad():
            return self._encode({"image": normalised(x.clamp(0, 1))})

    def encode_all(self, images: torch.Tensor) -> Tensors:
        """`encode`, a few pictures at a time."""
        parts = [self.encode(some) for some in images.split(16)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def decode(
        self,
        features: Tensors,
        points: torch.Tensor,
        labels: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> Tensors:
        """Masks [N, 4, MASK, MASK] and ious [N, 4] for prompts in pixels of SIDE x SIDE."""
        N, L = len(points), self.config.mask_size
        flag = torch.ones(N, dtype=torch.bool, device=points.device)
        given = points.new_zeros(N, 1, L, L) if mask is None else _sized(mask, L)
        values = {
            "points": (points + 0.5) * (self.config.image_size / SIDE) - 0.5,
            "labels": labels,
            "mask": given,
            "has_mask": flag & (mask is not None),
            "no_memory": flag,
            "multimask": flag,
        }
        with torch.no_grad():
            found = self._decode({**features, **values})
        return {**found, "masks": _sized(found["masks"], MASK)}

    def masks(self, features: Tensors, points: torch.Tensor) -> torch.Tensor:
        """Coverage [n, G, MASK, MASK] of what is at points [n, Q, 2]; good ones, no two alike.

        Of the three masks at a point the best comes first, where there are more than are kept.
        """
        n, Q, _ = points.shape
        labels = torch.ones(n * Q, 1, dtype=torch.long, device=points.device)
        each = {name: value.repeat_interleave(Q, 0) for name, value in features.items()}
        found = self.decode(each, points.reshape(n * Q, 1, 2), labels)
        logits, score = found["masks"][:, 1:], found["ious"][:, 1:].reshape(n, 3 * Q)
        logits = logits.reshape(n, 3 * Q, MASK, MASK)
        inner, outer = ((logits > limit).sum((2, 3)) for limit in (1.0, -1.0))
        area = (logits > 0).float().mean((2, 3))
        good = (score > 0.75) & (inner > 0.85 * outer) & (area > 0.003) & (area < 0.8)
        best = score.reshape(n, Q, 3)
        best = (best == best.amax(2, keepdim=True)).reshape(n, 3 * Q)
        first = (2.0 * good + best).argsort(1, descending=True)  # the best are compared first
        logits = logits.gather(1, first[:, :, None, None].expand_as(logits))
        small = functional.avg_pool2d((logits > 0).float(), 2).flatten(2)
        chosen = _apart(small, good.gather(1, first)).float()
        chosen = chosen * torch.linspace(1, 0.5, 3 * Q, device=points.device)
        order = chosen.topk(min(KEPT, 3 * Q), 1)
        picked = logits.gather(1, order.indices[:, :, None, None].expand(-1, -1, MASK, MASK))
        return torch.sigmoid(STEEP * picked) * (order.values > 0)[:, :, None, None]


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

    def __init__(self, scenes: Scenes, teacher: Teacher, solids: Solids, size: int) -> None:
        self.scenes, self.teacher, self.solids, self.size = scenes, teacher, solids, size
        self.filled = self._next = self._turn = 0
        self.chains: deque[tuple[torch.Tensor, torch.Tensor]] = deque(maxlen=CHAINS)
        at = torch.device(scenes.device)
        self.images = torch.empty(size, 3, SIDE, SIDE, dtype=torch.uint8, device=at)
        self.masks = torch.zeros(size, 2 * KEPT, MASK, MASK, dtype=torch.uint8, device=at)

    def add(self, count: int) -> None:
        """Draw more pictures, and ask the teacher about them; one batch in eight is of solids."""
        self._turn += 1
        if self._turn % SOLID == 1:
            images, chains = self.solids.nested(count, SIDE, MASK)
            self.chains.append((images, chains))
            known = chains.flatten(1, 2)
        else:
            images, exact = self.scenes.views(count)
            points = self.scenes.uniform(0, SIDE, count, ASKED, 2)
            seen = self.teacher.masks(self.teacher.encode(images), points)
            known = torch.cat([exact, (seen * 255).round().to(torch.uint8)], 1)
        known = known[:, : 2 * KEPT]
        known = functional.pad(known, (0, 0, 0, 0, 0, 2 * KEPT - known.shape[1]))
        places = (torch.arange(count, device=images.device) + self._next) % self.size
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


def _sized(masks: torch.Tensor, side: int) -> torch.Tensor:
    """Logits of masks at another size: [N, M, h, w] -> [N, M, side, side]."""
    if masks.shape[-1] == side:
        return masks
    return functional.interpolate(masks, side, mode="bilinear", align_corners=False)


def label_track(clips: Clips, track: Track, taught: Teacher) -> torch.Tensor:
    """The masks of a labelled object, as the teacher draws them: uint8 [frames, MASK, MASK]."""
    device = taught.device
    masks = torch.zeros(len(track.frames), MASK, MASK, device=device)
    seen = [i for i, prompt in enumerate(track.prompts) if prompt]
    pictures = clips.images[track.frames[seen]].to(device)
    features = taught.encode_all(pictures)
    given = [track.prompts[i] for i in seen]
    masks[seen] = draw(taught, features, given, clips.sizes[track.clip])[0]
    return (masks * 255).round().to(torch.uint8)


def draw(
    taught: Teacher, features: Tensors, prompts: list[Prompt], size: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """What boxes and points show, in pixels of frames of a size: [n, MASK, MASK], scores [n]."""
    given: list[Any] = [prompt.get("points") or [] for prompt in prompts]
    most = 1 + max(map(len, given))
    clicks = [points + [[0, 0, ABSENT]] * (most - len(points)) for points in given]
    boxes = [prompt["box"] for prompt in prompts]
    device = features["embedding"].device
    scale = torch.tensor([SIDE / size[0], SIDE / size[1]], device=device)
    corners = torch.tensor(boxes, device=device).float().reshape(-1, 2, 2)
    extra = torch.tensor(clicks, device=device).float()
    labels = torch.tensor([[2, 3]], device=device).expand(len(boxes), 2)
    found = taught.decode(
        features,
        torch.cat([corners, extra[..., :2]], 1) * scale,
        torch.cat([labels, extra[..., 2].long()], 1),
    )
    near = _near(corners * scale * (MASK / SIDE))
    return torch.sigmoid(STEEP * found["masks"][:, 0]) * near, found["ious"][:, 0]


def _near(boxes: torch.Tensor) -> torch.Tensor:
    """1 in boxes [n, 2, 2] and a little around them: [n, MASK, MASK]."""
    step = torch.arange(MASK, device=boxes.device) + 0.5
    (left, top), (right, bottom) = ((side.T[:, :, None]) for side in boxes.unbind(1))
    across = (step > left - NEAR) & (step < right + NEAR)
    down = (step > top - NEAR) & (step < bottom + NEAR)
    near: torch.Tensor = (down[:, :, None] & across[:, None]).float()
    return near
