"""How good a student is on what it never saw, next to its teacher on the same prompts.

    python -m training.measure DATA MODEL.safetensors [--only seen,exact]

Quick figures at 256 x 256, to steer by. What the model card says of pets and clips comes from
`samgraph eval`; how like the teacher the model is, from here. Every stage of training ends so too.
"""

import argparse
import math
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import torch
from safetensors.numpy import load_file
from torch.nn import functional

from samgraph.models.nano.config import NANO
from training import data
from training.data import CUT, EDGE, SIDE, Clips, Photos
from training.export import read_exported
from training.labelling import ASKED, FILE, Teacher, label_track
from training.losses import overlap
from training.manifest import check
from training.prompting import Prompter
from training.scenes import MASK, normalised
from training.solids import Solids
from training.student import Student, Tensors
from training.tracking import FirstPrompt, follow

CLICKS = 5
PARTS = ("seen", "clips", "exact", "pets")
UNSEEN = 10_000_000  # the seed of scenes that are only measured on
# image bytes -> a function from points, labels, previous logits, multimask to logits [N, 1, h, w]
Answer = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, bool], torch.Tensor]
Asked = Callable[[torch.Tensor], Answer]


def of_student(student: Student) -> Asked:
    """The student as something to ask."""

    def ask(images: torch.Tensor) -> Answer:
        features = student.encode(normalised(images.float() / 255))

        def answer(
            points: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor | None, multi: bool
        ) -> torch.Tensor:
            flag = torch.full((len(points),), multi, device=points.device)
            found = student.decode(features, points, labels, mask, multimask=flag)
            return _best(found) if multi else found["masks"][:, :1]

        return answer

    return ask


def of_teacher(teacher: Teacher) -> Asked:
    """The teacher, asked the same."""

    def ask(images: torch.Tensor) -> Answer:
        features = teacher.encode_all(images)

        def answer(
            points: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor | None, multi: bool
        ) -> torch.Tensor:
            found = teacher.decode(features, points, labels, mask)
            return _best(found) if multi else found["masks"][:, :1]

        return answer

    return ask


def _best(found: Tensors) -> torch.Tensor:
    best = found["ious"][:, 1:].argmax(1) + 1
    return found["masks"][torch.arange(len(best)), best][:, None]


def images(asked: Asked, pictures: torch.Tensor, masks: torch.Tensor) -> dict[str, float]:
    """Mean IoU by box, one click and five: pictures as bytes, masks 0, 255 or EDGE."""
    prompter = Prompter(str(pictures.device), 0)
    sums = torch.zeros(3)
    for image, mask in zip(pictures.split(64), masks.split(64), strict=True):
        answer = asked(image)
        counts = (mask != EDGE)[:, None]
        target = (mask > EDGE).float()
        corners = prompter.box(target, rough=0.0)
        two = torch.tensor([[2, 3]], device=image.device).expand(len(image), 2).contiguous()
        boxed = answer(corners, two, None, False)
        points = prompter.click(target, careful=1.0)
        labels = torch.ones(len(image), 1, dtype=torch.long, device=image.device)
        first = logits = answer(points, labels, None, True)
        for _ in range(CLICKS - 1):
            ignored = torch.where(counts[:, 0], target, (logits[:, 0] > 0).float())
            point, label = prompter.correction(logits, ignored, careful=1.0)
            points, labels = torch.cat([points, point], 1), torch.cat([labels, label], 1)
            logits = answer(points, labels, logits.clamp(-32, 32), False)
        for i, found in enumerate((boxed, first, logits)):
            sums[i] += overlap(torch.where(counts, found, -1.0), target).sum().cpu()
    box, one, five = (sums / len(pictures)).tolist()
    return {"box": box, "1 click": one, "5 clicks": five}


def seen_by_teacher(teacher: Teacher, photos: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures and masks of all that the teacher sees in photographs, to compare with it."""
    axis = (torch.arange(4, device=photos.device) + 0.5) * SIDE / 4
    points = torch.cartesian_prod(axis, axis).reshape(1, ASKED, 2)
    pictures, masks = [], []
    for image in photos.split(8):
        found = teacher.masks(teacher.encode(image), points.expand(len(image), -1, -1))
        area = (found > 0.5).float().mean((2, 3))
        for i, j in (area > 0.003).nonzero().tolist():
            pictures.append(image[i])
            masks.append((found[i, j] > 0.5).to(torch.uint8) * 255)
    return torch.stack(pictures), torch.stack(masks)


def clips(student: Student, held_out: Clips, teacher: Teacher) -> dict[str, float]:
    """Mean IoU over labelled frames after the first, from a mask and from a box."""
    device = student.device
    prompter, sums, count = Prompter(device, 0), {"mask": 0.0, "box": 0.0, "copied": 0.0}, 0
    for track in held_out.tracks:
        targets = label_track(held_out, track, teacher).float().to(device) / 255
        pictures = held_out.images[track.frames].to(device)
        found = student.encode(normalised(pictures.float() / 255))
        features = [{k: v[t : t + 1] for k, v in found.items()} for t in range(len(pictures))]
        nowhere = torch.zeros(1, 1, 2, device=device), torch.full((1, 1), -1, device=device)
        first = targets[:1]
        two, one = torch.tensor([[2, 3]], device=device), torch.tensor([False], device=device)
        prompts = {
            "mask": FirstPrompt(*nowhere, one, masks=first),
            "box": FirstPrompt(prompter.box(first, rough=0.0), two, one),
        }
        pace = torch.tensor(1 / min(15, max(1, len(features) - 1)), device=device)
        there = (targets[1:] > 0.5).flatten(1).any(1)
        for kind, prompt in prompts.items():
            answers = follow(student, features, prompt, pace)
            logits = torch.cat([answer["best_mask"] for answer in answers[1:]])
            sums[kind] += float(_j(logits, targets[1:], there).mean())
        copied = torch.where(first > 0.5, 1.0, -1.0).expand(len(targets) - 1, 1, MASK, MASK)
        sums["copied"] += float(_j(copied, targets[1:], there).mean())
        count += 1
    return {kind: total / max(1, count) for kind, total in sums.items()}


def _j(logits: torch.Tensor, targets: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    """IoU a frame; where nothing is there, 1 if nothing was found."""
    nothing = (logits <= 0).flatten(1).all(1).float()
    return torch.where(there, overlap(logits, targets)[:, 0], nothing)


def pets(photos: Photos, count: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Held-out photographs with masks at the resolution of low-resolution masks."""
    masks = photos.masks[:count, :: CUT // MASK, :: CUT // MASK].contiguous()
    return photos.images[:count].to(device), masks.to(device)


def exact(asked: Asked, pictures: torch.Tensor, masks: torch.Tensor) -> dict[str, float]:
    """Mean IoU and boundary IoU, by box, against exact masks: coverage uint8 [n, MASK, MASK]."""
    prompter, sums = Prompter(str(pictures.device), 0), torch.zeros(2)
    for image, mask in zip(pictures.split(8), masks.split(8), strict=True):
        target = mask.float() / 255
        two = torch.tensor([[2, 3]], device=image.device).expand(len(image), 2).contiguous()
        found = asked(image)(prompter.box(target, rough=0.0), two, None, False)
        sums[0] += overlap(found, target).sum().cpu()
        sums[1] += boundary_overlap(found, target).sum().cpu()
    whole, edge = (sums / len(pictures)).tolist()
    return {"IoU": whole, "boundary IoU": edge}


def boundary_overlap(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Boundary IoU (Cheng et al. 2021): the IoU within 2 % of the diagonal of the edges: [N, M]."""
    reach = round(0.02 * math.hypot(*target.shape[1:]))

    def rim(mask: torch.Tensor) -> torch.Tensor:
        padded = functional.pad(1 - mask.float(), (1, 1, 1, 1), value=1.0)
        outside = functional.max_pool2d(padded, 2 * reach + 1, 1, reach)[..., 1:-1, 1:-1]
        return mask & (outside > 0)

    found, wanted = rim(logits > 0), rim(target[:, None] > 0.5)
    union = (found | wanted).sum((2, 3)).float()
    return (found & wanted).sum((2, 3)).float() / union.clamp(min=1)


def drawn_solids(photos: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A whole thing of each of some scenes that no training drew, with its exact mask."""
    solids = Solids(str(photos.device), UNSEEN, photos)
    images, chains = solids.nested(count, SIDE, MASK)
    wholes = chains[:, :, 2]
    area = wholes.float().mean((2, 3)) / 255
    most = (area * (area < 0.5)).argmax(1)
    chosen = wholes[torch.arange(len(wholes), device=wholes.device), most]
    known = chosen.flatten(1).amax(1) > 0
    return images[known], chosen[known]


def report(
    student: Student, teacher: Teacher, folder: Path, only: Collection[str] = PARTS
) -> Iterator[tuple[str, dict[str, float]]]:
    """Figures on what was held out, by name. No gradients are wanted here."""
    device, asked = student.device, of_student(student)
    held_out = data.read_clips(folder, split="held-out")
    if "seen" in only:
        seen = seen_by_teacher(teacher, held_out.images[::12].to(device))
        yield "as the teacher, clips", images(asked, *seen)
    if "clips" in only:
        yield "held-out clips", clips(student, held_out, teacher)
    if "exact" in only:
        solids = drawn_solids(held_out.images[::12].to(device), 64)
        yield "solids", exact(asked, *solids)
        yield "teacher, solids", exact(of_teacher(teacher), *solids)
    if "pets" in only:
        pictures, masks = pets(data.read_pets(folder, held_out=True), 256, device)
        yield "held-out pets", images(asked, pictures, masks)
        yield "teacher, pets", images(of_teacher(teacher), pictures, masks)


def main() -> None:
    """The figures of an exported model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--only", default=",".join(PARTS), help="some of %(default)s")
    given = parser.parse_args()
    only = given.only.split(",")
    if unknown := sorted(set(only) - set(PARTS)):
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(unknown)}")
    check(given.data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    student = Student(NANO, read_exported(given.model), device)
    teacher = Teacher(load_file(given.data / FILE), device)
    with torch.no_grad():
        for name, figures in report(student, teacher, given.data, only):
            print(name, {key: round(value, 3) for key, value in figures.items()}, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
