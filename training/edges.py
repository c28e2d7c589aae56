"""What enlarges masks learns by itself, on a CPU: everything before it is computed once and kept.

    python -m training.edges DATA MODEL.safetensors OUT.safetensors --minutes 45

The maps of fine features, the upscaling, the hypernetworks, the refinement and the predicted IoU
learn; trunk, prompts, transformer and memory rest. So an answer to a prompt is kept as what the
transformer made of it, and learning from it costs a hundredth of a step of the whole decoder.
Pictures, prompts and targets are those of the stage of masks (`train.py`).

Shapes: N prompts, C channels, E grid, S input side, h w masks.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.numpy import load_file

from samgraph import checkpoint
from samgraph.engines.torch import Evaluator
from samgraph.graph import Builder, Graph
from samgraph.models.nano.config import NANO, NanoConfig
from samgraph.models.nano.graphs import neck
from samgraph.models.nano.tinyvit import tinyvit
from samgraph.models.sam2 import mask_decoder
from samgraph.models.sam2.graphs import prompted_image
from samgraph.models.sam2.layers import conv2d
from samgraph.models.sam2.tracker_config import REFINED_CHANNELS
from training import data
from training.export import STEEPER, read_exported, steeper
from training.fixed import evaluator
from training.labelling import FILE, Pool, Teacher
from training.losses import answer_loss
from training.manifest import check
from training.prompting import ABSENT, Prompter
from training.scenes import Scenes
from training.solids import Solids
from training.student import Tensors

DECODER = "sam_mask_decoder"
RATES = {f"{DECODER}.{name}": 2e-3 for name in ("conv_finest", "refinement")}
RATES |= {f"{DECODER}.{name}": 1e-4 for name in ("conv_s", "output_", "iou_prediction_head")}
PREPARING = 0.4  # of the time goes into pictures and answers to prompts
EACH, ROUNDS, BATCH = 4, 3, 12
PICTURES = 2  # drawn at once: the teacher answers 16 prompts about each, in a gigabyte
AVERAGED = 0.3  # of the steps, the last, are averaged
MAPS = ("stem", "fine", "middle")


def before(config: NanoConfig) -> Graph:
    """image [B, 3, S, S] -> embedding, and the maps of the trunk that are read later."""
    builder, S = Builder("before"), config.image_size
    image, at = builder.input("image", f"f32[B,3,{S},{S}]"), builder.scope() / "image_encoder"
    maps = tinyvit(at / "trunk", config.trunk, image)
    return builder.finish(
        embedding=neck(at / "neck", config, maps.last),
        stem=maps.stem,
        fine=maps.fine,
        middle=maps.middle,
    )


def attended(config: NanoConfig) -> Graph:
    """Prompts on embeddings -> output tokens [N, 6, C] and the image [N, E * E, C]."""
    builder, C, E = Builder("attended"), config.channels, config.grid
    embedding = builder.input("embedding", f"f32[N,{C},{E},{E}]")
    (image, *rest), multimask = prompted_image(builder, config, embedding)
    at = builder.scope() / DECODER
    tokens, image = mask_decoder.attend(at, config, image, *rest)
    return builder.finish(
        tokens=tokens[:, : mask_decoder.OUTPUT_TOKENS], seen=image, multimask=multimask
    )


def heads(config: NanoConfig) -> Graph:
    """What `before` and `attended` give -> masks [N, 4, h, w] and ious [N, 4]."""
    builder, C, E = Builder("heads"), config.channels, config.grid
    tokens = builder.input("tokens", f"f32[N,{mask_decoder.OUTPUT_TOKENS},{C}]")
    image = builder.input("seen", f"f32[N,{E * E},{C}]")
    widths = config.trunk.channels
    sizes = {"stem": (widths[0] // 2, 8), "fine": (widths[0], 4), "middle": (widths[1], 2)}
    stem, fine, middle = (
        builder.input(name, f"f32[N,{c},{k * E},{k * E}]") for name, (c, k) in sizes.items()
    )
    at = builder.scope() / DECODER
    maps = (
        conv2d(at / "conv_s0", fine, C // 8, 1),
        conv2d(at / "conv_s1", middle, C // 4, 1),
        conv2d(at / "conv_finest", stem, REFINED_CHANNELS, 1),
    )
    found = mask_decoder.read(at, config, tokens, image, maps)
    return builder.finish(masks=found.masks, ious=found.ious)


@dataclass(frozen=True)
class Answers:
    """What the transformer made of prompts on one picture: rows of each tensor are prompts."""

    maps: Tensors  # of the picture, half precision, [1, ...]
    tokens: torch.Tensor
    seen: torch.Tensor  # half precision
    targets: torch.Tensor  # uint8 [N, h, w]
    multimask: torch.Tensor


class Maker:
    """Pictures with answers to prompts about them."""

    def __init__(self, folder: Path, config: NanoConfig, weights: Tensors, seed: int) -> None:
        arrays = {name: weight.detach().numpy() for name, weight in weights.items()}
        self.before = evaluator(before(config), arrays, "cpu")
        self.attended = evaluator(attended(config), arrays, "cpu")
        self.heads, self.weights, self.config = Evaluator(heads(config)), weights, config
        clips = data.read_clips(folder, split="train")
        pets = data.read_pets(folder, held_out=False)
        photos = data.joined(pets, data.clip_photos(clips), data.read_photos(folder))
        scenes = Scenes(photos, data.read_objects(folder, pets), "cpu", seed)
        teacher = Teacher(load_file(folder / FILE), "cpu")
        self.pool = Pool(scenes, teacher, Solids("cpu", seed, photos.images[:400]), PICTURES)
        self.scenes, self.prompter = scenes, Prompter("cpu", seed + 1)

    def make(self) -> Iterator[Answers]:
        """More of them, for ever."""
        while True:
            self.pool.add(self.pool.size)
            masks = self.pool.some_masks(torch.arange(self.pool.size), EACH)
            for picture, targets in zip(self.pool.images, masks, strict=True):
                with torch.no_grad():
                    found = self.answers(picture, targets)
                yield found

    def answers(self, picture: torch.Tensor, targets: torch.Tensor) -> Answers:
        """A first prompt for each target, a box or a click, and corrections of what is found."""
        N, L = len(targets), self.config.mask_size
        maps = self.before({"image": self.scenes.lit(picture[None])})
        embedding = maps.pop("embedding").expand(N, -1, -1, -1)
        box = self.scenes.uniform(0, 1, N) < 0.5
        as_box, as_click = torch.tensor([2, 3, ABSENT]), torch.tensor([ABSENT, ABSENT, 1])
        labels = torch.where(box[:, None], as_box, as_click)
        points = torch.cat([self.prompter.box(targets), self.prompter.click(targets)], 1)
        yes, logits, kept = torch.ones(N, dtype=torch.bool), torch.zeros(N, 1, L, L), []
        for i in range(ROUNDS):
            multimask = ~box & (i == 0)
            flags = {"has_mask": yes & (i > 0), "no_memory": yes, "multimask": multimask}
            given = {"embedding": embedding, "points": points, "labels": labels, "mask": logits}
            found = self.attended(given | flags)
            kept.append((found["tokens"], found["seen"].half(), multimask))
            answer = self.heads({**self.weights, **found, **_repeated(maps, N)})
            best = torch.where(multimask, answer["ious"][:, 1:].argmax(1) + 1, 0)
            logits = answer["masks"][torch.arange(N), best][:, None].clamp(-32, 32)
            point, label = self.prompter.correction(logits, targets)
            points, labels = torch.cat([points, point], 1), torch.cat([labels, label], 1)
        tokens, seen, multi = (torch.cat(parts) for parts in zip(*kept, strict=True))
        bytes_ = (targets * 255).round().to(torch.uint8).repeat(ROUNDS, 1, 1)
        half = {name: value.half() for name, value in maps.items()}
        return Answers(half, tokens, seen, bytes_, multi)


def _repeated(maps: Tensors, count: int) -> Tensors:
    return {name: value.float().expand(count, -1, -1, -1) for name, value in maps.items()}


def learn(
    config: NanoConfig,
    weights: Tensors,
    known: list[Answers],
    along: Callable[[int], float],
    seed: int,
) -> Iterator[dict[str, float]]:
    """Steps until `along`, a function of the step, is 1; the weights end as the last ones' mean."""
    groups: dict[float, list[torch.Tensor]] = {}
    for name, weight in weights.items():
        rate = next((r for start, r in RATES.items() if name.startswith(start)), 0.0)
        weight.requires_grad_(rate > 0)
        if rate:
            groups.setdefault(rate, []).append(weight)
    optimiser = torch.optim.AdamW(
        [{"params": some, "lr": rate, "top": rate} for rate, some in groups.items()],
        betas=(0.9, 0.98),
        weight_decay=0.02,
    )
    random, enlarged = torch.Generator().manual_seed(seed), Evaluator(heads(config))
    learning = [weight for some in groups.values() for weight in some]
    sums = [torch.zeros_like(weight) for weight in learning]
    count = step = 0
    total = 0.0
    while (share := along(step)) < 1:
        pace = min(1.0, (step + 1) / 50) * (0.02 + 0.49 * (1 + math.cos(math.pi * share)))
        for group in optimiser.param_groups:
            group["lr"] = group["top"] * pace
        pictures = torch.randint(len(known), (BATCH // EACH,), generator=random)
        losses = []
        optimiser.zero_grad(set_to_none=True)
        for picture in pictures.tolist():
            some = known[picture]
            rows = torch.randperm(len(some.tokens), generator=random)[:EACH]
            given = {"tokens": some.tokens[rows], "seen": some.seen[rows].float()}
            answer = enlarged({**weights, **given, **_repeated(some.maps, len(rows))})
            target = some.targets[rows].float() / 255
            area = target.flatten(1).mean(1)
            answer["object_score"] = torch.full((len(rows), 1), 10.0)
            present = (area > 0.002) & (area < 0.9)
            loss = answer_loss(answer, target, some.multimask[rows], present) / len(pictures)
            loss.backward()
            losses.append(float(loss.detach()))
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimiser.step()
        step, total = step + 1, total + sum(losses)
        if share > 1 - AVERAGED:
            count += 1
            torch._foreach_add_(sums, [weight.detach() for weight in learning])
        if step % 100 == 0:
            yield {"step": step, "loss": round(total / 100, 4)}
            total = 0.0
    with torch.no_grad():
        for weight, summed in zip(learning, sums, strict=True):
            if count:
                weight.copy_(summed / count)
    yield {"step": step}


def main() -> None:
    """Write the model whose masks are finer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if not given.minutes > 0:
        parser.error("--minutes must be more than 0")
    check(given.data)
    began, seconds = time.time(), 60 * given.minutes
    arrays = read_exported(given.model)
    weights = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    known: list[Answers] = []
    for answers in Maker(given.data, NANO, weights, given.seed).make():
        known.append(answers)
        if time.time() - began > PREPARING * seconds:
            break
    _say({"pictures": len(known), "s": round(time.time() - began)})
    start = time.time()
    left = began + seconds - start
    clock = partial(_share_of, start, left)
    for line in learn(NANO, weights, known, clock, given.seed):
        _say(line)
    metadata = {"samgraph.config": NANO.to_json(), "samgraph.family": "nano", "format": "pt"}
    learned = {name: weight.detach().numpy() for name, weight in weights.items()}
    checkpoint.save(given.out, steeper(learned, STEEPER), precision="fp16", metadata=metadata)


def _share_of(start: float, seconds: float, _: int) -> float:
    return (time.time() - start) / seconds


def _say(line: dict[str, float]) -> None:
    print(line, flush=True)  # noqa: T201 (a script)


if __name__ == "__main__":
    main()
