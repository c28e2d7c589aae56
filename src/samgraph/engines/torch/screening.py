"""Automatic masks filtered on the device: by score, stability, and whether a crop cut them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from samgraph.engines.buffers import BestMasks, MaskFilter, PassedMasks
from samgraph.engines.torch.suppression import suppress

Measure = Callable[
    [torch.Tensor, tuple[int, int], tuple[float, float, float], torch.Tensor], torch.Tensor
]


@dataclass(frozen=True, slots=True)
class Screened:
    """All masks of a batch, [K, L, L], and which of them pass: on their way to the host."""

    logits: torch.Tensor
    scores: torch.Tensor
    stability: torch.Tensor
    boxes: torch.Tensor
    per_prompt: int
    passes: torch.Tensor  # in pinned memory, bool [K]
    ready: torch.cuda.Event | None


def screen(
    masks: torch.Tensor,
    ious: torch.Tensor,
    stability: torch.Tensor,
    rule: MaskFilter,
    measure: Measure,
) -> Screened:
    """Start to filter masks [N, M, L, L] with scores [N, M]; waits for nothing."""
    logits, scores = masks.flatten(0, 1), ious.flatten()
    wanted = _chosen(ious, stability, rule).flatten()
    if rule.least_score > 0:
        wanted = wanted & (scores > rule.least_score)
    measured = measure(logits.contiguous(), rule.crop_hw, rule.thresholds, wanted)
    steady = measured[:, 0].float() / measured[:, 1].clamp(min=1).float()
    boxes = measured[:, 2:].clamp(min=0)  # the crop's corner for an empty mask
    boxes[:, 0::2] += rule.crop_xyxy[0]
    boxes[:, 1::2] += rule.crop_xyxy[1]
    if rule.least_stability > 0:
        wanted = wanted & (steady >= rule.least_stability)
    wanted = wanted & ~_were_cut(boxes, rule)
    is_apart = wanted.device.type == "cuda"
    passes = torch.empty(wanted.shape, dtype=torch.bool, pin_memory=is_apart)
    passes.copy_(wanted, non_blocking=is_apart)
    ready = torch.cuda.Event() if is_apart else None
    if ready is not None:
        ready.record(torch.cuda.current_stream(wanted.device))
    return Screened(logits, scores, steady, boxes, ious.shape[1], passes, ready)


def passed(
    screened: Screened, send: Callable[[np.ndarray[tuple[int], np.dtype[np.int64]]], torch.Tensor]
) -> PassedMasks:
    """The masks that passed; waits for the batch, not for what was started after it."""
    if screened.ready is not None:
        screened.ready.synchronize()
    rows = np.flatnonzero(screened.passes.numpy())
    index = send(rows)
    parts = (screened.logits, screened.scores, screened.stability, screened.boxes)
    return PassedMasks(
        rows // screened.per_prompt, *(part.index_select(0, index) for part in parts)
    )


def best(
    parts: Sequence[PassedMasks],
    iou_threshold: float,
    send: Callable[[np.ndarray[tuple[int], np.dtype[np.int64]]], torch.Tensor],
) -> BestMasks:
    """Masks that are kept, best first; all that is known of them is downloaded at once."""
    scores, stability, boxes = (
        torch.cat([getattr(part, name) for part in parts])
        for name in ("scores", "stability", "boxes")
    )
    order, keep = suppress(boxes, scores, iou_threshold)
    numbers = [order, keep, scores.view(torch.int32), stability.view(torch.int32), *boxes.unbind(1)]
    known = torch.stack([column.to(torch.int64) for column in numbers]).cpu().numpy()
    kept = known[0][known[1] != 0]
    ends = np.cumsum([len(part.prompts) for part in parts])
    part_of = np.searchsorted(ends, kept, side="right")
    starts = ends - [len(part.prompts) for part in parts]
    chosen = []
    for i, part in enumerate(parts):
        own = np.sort(kept[part_of == i])
        chosen.append(part.logits.index_select(0, send(own - starts[i])))
    places = np.searchsorted(np.sort(kept), kept)
    logits = torch.cat(chosen).index_select(0, send(places))
    floats = known[2:4].astype(np.int32).view(np.float32)
    return BestMasks(kept, logits, floats[0][kept], floats[1][kept], known[4:].T[kept])


def _chosen(ious: torch.Tensor, stability: torch.Tensor, rule: MaskFilter) -> torch.Tensor:
    """Which masks stand for their prompt, bool [N, M]."""
    columns = torch.arange(ious.shape[1], device=ious.device)
    if rule.multimask:
        return (columns > 0).expand(ious.shape)
    index = torch.zeros(len(ious), dtype=torch.int64, device=ious.device)
    if rule.stable_from is not None:
        other = 1 + ious[:, 1:].argmax(1)
        index = torch.where(stability[:, 0] >= rule.stable_from, index, other)
    return columns == index[:, None]


def _were_cut(boxes: torch.Tensor, rule: MaskFilter) -> torch.Tensor:
    """Which masks end at an edge of the crop that is not an edge of the image, [K]."""
    height, width = rule.image_hw
    cut = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    for side, (crop, image) in enumerate(zip(rule.crop_xyxy, (0, 0, width, height), strict=True)):
        ends = boxes[:, side]
        cut |= ((ends - crop).abs() <= rule.edge) & ((ends - image).abs() > rule.edge)
    return cut
