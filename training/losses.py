"""The losses of the student: masks, and once more at their edges; its own scores; presence.

Shapes: N prompts, M masks of a prompt. Targets are coverage 0..1.
"""

from itertools import permutations

import torch
from torch.nn import functional

FOCAL_WEIGHT, EDGE_WEIGHT = 20.0, 0.5
EDGE_REACH = 5  # pixels to each side of an edge


def mask_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Focal, dice and edge loss of each mask: [N, M, h, w], [N, h, w] -> [N, M]."""
    wanted = target[:, None].expand_as(logits)
    chance = torch.sigmoid(logits)
    entropy = functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    lean = 0.75 - 0.5 * wanted  # as in SAM: a quarter for the object, the rest for the background
    focal = (entropy * (chance - wanted).square() * lean).mean((2, 3))
    both = (chance * wanted).sum((2, 3))
    dice = 1 - (2 * both + 1) / (chance.sum((2, 3)) + wanted.sum((2, 3)) + 1)
    near = near_edges(target)[:, None]
    edge = (entropy * near).sum((2, 3)) / near.sum((2, 3)).clamp(min=1)
    return FOCAL_WEIGHT * focal + dice + EDGE_WEIGHT * edge


def near_edges(target: torch.Tensor) -> torch.Tensor:
    """How much pixels count as near an edge, 0..1, the half covered least: [N, h, w] -> the same.

    Edges are a fiftieth of a picture, so in a mean over all of it they hardly count.
    """
    covered = target[:, None]
    most = functional.max_pool2d(covered, 2 * EDGE_REACH + 1, 1, EDGE_REACH)
    least = -functional.max_pool2d(-covered, 2 * EDGE_REACH + 1, 1, EDGE_REACH)
    near: torch.Tensor = ((most - least > 0.5) * (2 * covered - 1).square())[:, 0]
    return near


def overlap(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """IoU of each mask: [N, M]."""
    found, wanted = logits > 0, target[:, None] > 0.5
    union = (found | wanted).sum((2, 3)).float()
    return (found & wanted).sum((2, 3)).float() / union.clamp(min=1)


def answer_loss(
    answer: dict[str, torch.Tensor],
    target: torch.Tensor,
    multimask: torch.Tensor,
    present: torch.Tensor,
    known: torch.Tensor | None = None,
) -> torch.Tensor:
    """One number for the answers to N prompts, of which only those that are known count.

    Of an ambiguous prompt only the best of masks 1 to 3 learns; otherwise mask 0 does. All scores
    learn. Where the object is not there, only the presence does.
    """
    each = mask_loss(answer["masks"], target)
    best = each[:, 1:].min(1).values
    shape = torch.where(multimask, best, each[:, 0])
    error = (answer["ious"] - overlap(answer["masks"].detach(), target)).abs()
    quality = torch.where(multimask, error[:, 1:].mean(1), error[:, 0])
    seen = functional.binary_cross_entropy_with_logits(
        answer["object_score"][:, 0], present.float(), reduction="none"
    )
    if known is None:
        known = torch.ones_like(present)
    shown = present & known
    shape = ((shape + quality) * shown).sum() / shown.sum().clamp(min=1)
    return shape + (seen * known).sum() / known.sum().clamp(min=1)


def nested_loss(answer: dict[str, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    """One number for answers to clicks that mean each of three masks: target [N, 3, h, w].

    Masks 1 to 3 are assigned to the targets as they fit best; each learns its own, and its score
    is its overlap with it. Empty targets do not count.
    """
    masks, ious = answer["masks"][:, 1:], answer["ious"][:, 1:]
    cost = torch.stack([mask_loss(masks, target[:, k]) for k in range(3)], 2)
    with torch.no_grad():
        shared = torch.stack([overlap(masks, target[:, k]) for k in range(3)], 2)
    counts = (target.flatten(2).mean(2) > 0.002).float()
    pairs = (cost + (ious[:, :, None] - shared).abs()) * counts[:, None]
    orders = [sum(pairs[:, i, k] for k, i in enumerate(order)) for order in permutations(range(3))]
    return torch.stack(orders, 1).amin(1).sum() / counts.sum().clamp(min=1)
