"""Train samgraph-nano, one stage after another, on one GPU (or, slowly, on a CPU).

    python -m training.train masks video --data DATA --state STATE --start START

`masks`: it learns to segment; `video`: and to follow. Stages that are named together run one after
the other. Each starts from what the one before left in STATE, or goes on where it stopped itself.
The state is saved every half minute: a folder of files of at most 16 MB, complete or not there.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file

from samgraph.models.nano.config import NANO, NanoConfig
from training import data, measure
from training.corrections import losses_at, shown_first
from training.export import read_exported
from training.films import Reel, real_films, solid_films
from training.labelling import FILE, Pool, Teacher
from training.losses import answer_loss, nested_loss
from training.manifest import check
from training.prompting import ABSENT, Prompter
from training.recorded import Losses, Recorded
from training.scenes import Scenes
from training.solids import Solids
from training.state import load_state, save_state
from training.student import Student, Tensors
from training.tracking import FirstPrompt, features_of, follow

SAVE_EVERY = 30.0  # seconds
EMA_STEPS = 300
REAL = 0.6  # how often the clips of a step are real, or of solids; else drawn
CORRECTED = 0.35  # how often a step of video corrects; else it follows
NESTED = 8  # one step of masks in so many is of parts, groups and wholes
FILLED = 16  # one picture in so many of the pool is drawn before the first step
LONGEST = 15  # the tracker divides pointer times by this, in clips of 16 frames and more


@dataclass(frozen=True)
class Clip:
    """Clips of a step: how many, how long, and how many objects of each are followed."""

    batch: int
    frames: int
    objects: int


@dataclass(frozen=True)
class Stage:
    """How long and how fast to learn."""

    steps: int
    batch: int  # pictures
    rates: dict[str, float]  # of weights whose name starts so, first match; 0 is not at all
    warm_up: int = 100
    fresh: int = 8  # new pictures for the pool, every so many steps
    every: int = 1
    pool: int = 12_000
    clips: tuple[Clip, ...] = ()  # one kind after the other


SOLID_FILMS = Clip(batch=6, frames=16, objects=6)  # beside the real ones
_REFINEMENT = ("sam_mask_decoder.conv_finest", "sam_mask_decoder.refinement")
_FINE = ("sam_mask_decoder.conv_s",)
_MEMORY = ("memory_", "maskmem", "no_", "obj_ptr", "mask_downsample")
_TRUNK = "image_encoder.trunk."
_STILL = {_TRUNK + name: 0.0 for name in ("patch_embed", "layers.0.")}  # half the time, for little
STAGES = {
    "masks": Stage(
        steps=8000,
        batch=32,
        fresh=16,
        every=4,
        rates={
            **_STILL,
            _TRUNK: 1e-4,
            **dict.fromkeys(_MEMORY, 0.0),
            **dict.fromkeys(_REFINEMENT, 2e-3),
            **dict.fromkeys(_FINE, 5e-4),
            "": 2e-4,
        },
    ),
    "video": Stage(
        steps=8000,
        batch=8,
        rates={
            **_STILL,
            _TRUNK: 3e-5,
            **dict.fromkeys(_MEMORY, 3e-4),
            **dict.fromkeys(_REFINEMENT, 1e-3),
            **dict.fromkeys(_FINE, 3e-4),
            "": 1e-4,
        },
        fresh=16,
        every=8,
        clips=(  # a third of the time each
            Clip(batch=8, frames=7, objects=3),
            Clip(batch=8, frames=7, objects=3),
            Clip(batch=4, frames=14, objects=3),
        ),
    ),
}
SMALL = Stage(
    steps=2,
    batch=2,
    rates={"": 1e-3},
    fresh=2,
    pool=8,
    warm_up=1,
    clips=(Clip(batch=1, frames=2, objects=2), Clip(batch=1, frames=3, objects=1)),
)


class Run:
    """Weights that learn, their running average, and a log."""

    def __init__(
        self,
        name: str,
        stage: Stage,
        student: Student,
        folder: Path,
        step: int,
        ends: float,
        eager: bool,
    ) -> None:
        self.name, self.stage, self.student = name, stage, student
        self.folder, self.step, self.started = folder, step, time.time()
        self.seconds, self.eager = ends - self.started, eager
        groups: dict[float, list[torch.Tensor]] = {}
        for key, weight in student.weights.items():
            rate = next(r for start, r in stage.rates.items() if key.startswith(start))
            groups.setdefault(rate, []).append(weight)
            weight.requires_grad_(rate > 0)
        self.optimiser = torch.optim.AdamW(
            [{"params": some, "lr": rate, "top": rate} for rate, some in groups.items() if rate],
            betas=(0.9, 0.98),
            weight_decay=0.02,
            fused=True,
        )
        self.average = {key: weight.detach().clone() for key, weight in student.weights.items()}
        self._saved, self._since = time.time(), step
        self._sums: dict[str, torch.Tensor] = {}
        self._recorded: dict[Any, Recorded] = {}

    def learn(self, compute: Callable[..., Losses], *given: torch.Tensor) -> None:
        """One step down the sum of the losses that `compute` finds."""
        made = self.step - self._since + 1
        start = min(1.0, made / self.stage.warm_up)
        pace = start * (0.02 + 0.49 * (1 + math.cos(math.pi * self.along)))
        for group in self.optimiser.param_groups:
            group["lr"] = group["top"] * pace
        weights = [p for group in self.optimiser.param_groups for p in group["params"]]
        kind = compute, *(tensor.shape for tensor in given)
        if kind not in self._recorded:
            step = partial(compute, self)
            self._recorded[kind] = Recorded(step, weights, eager=self.eager)
        losses = self._recorded[kind](*given)
        size = torch.nn.utils.clip_grad_norm_(weights, 1.0)
        none = (~torch.isfinite(size)).float()  # no step then; nothing waits
        self.optimiser.found_inf = none  # read by fused AdamW
        self.optimiser.step()
        keep = min(1 - 1 / EMA_STEPS, made / (made + 9))
        with torch.no_grad():
            old, new = list(self.average.values()), list(self.student.weights.values())
            torch._foreach_lerp_(old, [weight.detach() for weight in new], 1 - keep)
        for key, value in {**losses, "gradient": size}.items():
            self._sums[key] = self._sums.get(key, 0) + value.detach().clone()
        self.step += 1
        if self.step % 50 == 0:
            self.log({key: float(total) / 50 for key, total in self._sums.items()})
            self._sums.clear()
        if time.time() - self._saved > SAVE_EVERY:
            self.save()

    @property
    def spent(self) -> float:
        """Seconds since the start of this run."""
        return time.time() - self.started

    @property
    def along(self) -> float:
        """How much of the way is made, from 0 to 1."""
        return min(1.0, max(self.step / self.stage.steps, self.spent / self.seconds))

    @property
    def is_done(self) -> bool:
        """Whether all steps are made, or the time is up."""
        return self.step >= self.stage.steps or self.spent >= self.seconds

    def log(self, figures: dict[str, Any]) -> None:
        """A line on the screen and in the log."""
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}
        line = {"stage": self.name, "step": self.step, "s": round(time.time() - self.started)}
        text = json.dumps({**line, **shown})
        print(text, flush=True)  # noqa: T201 (a script)
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(text + "\n")

    def averaged(self) -> Student:
        """A student with the averaged weights."""
        arrays = {key: value.cpu().numpy() for key, value in self.average.items()}
        return Student(self.student.config, arrays, self.student.device)

    def save(self) -> None:
        """The averaged weights at the end of the stage, the weights themselves before it."""
        done = self.is_done
        source = self.average if done else self.student.weights
        arrays = {key: value.detach().cpu().numpy() for key, value in source.items()}
        save_state(self.folder, arrays, {"stage": self.name, "step": self.step, "done": done})
        self._saved = time.time()


@dataclass(frozen=True)
class Room:
    """Everything a stage works with."""

    run: Run
    scenes: Scenes
    pool: Pool
    prompter: Prompter
    teacher: Teacher
    solids: Solids
    clips: data.Clips

    def refresh(self) -> None:
        """New pictures in the pool, every so many steps."""
        if self.run.step % self.run.stage.every == 0:
            self.pool.add(self.run.stage.fresh)


def masks_step(room: Room) -> None:
    """Segment whatever is asked for, and do better when corrected."""
    if room.run.step % NESTED == 0:
        room.run.learn(_nested_losses, *_nested_questions(room))
        return
    room.run.learn(_three_rounds, *_questions(room, each=4))


def _nested_questions(room: Room) -> tuple[torch.Tensor, ...]:
    """Pictures of solids, parts, groups and wholes in them, and clicks on the parts."""
    picture, masks = room.pool.chains[room.run.step // NESTED % len(room.pool.chains)]
    target = masks.flatten(0, 1).float() / 255
    return room.scenes.lit(picture), target, room.prompter.click(target[:, 0])


def _nested_losses(
    run: Run, image: torch.Tensor, target: torch.Tensor, points: torch.Tensor
) -> Losses:
    """One click means a part, a group of parts or a whole: one of three masks each."""
    features = run.student.encode(image)
    each = len(target) // len(image)
    features = {key: value.repeat_interleave(each, 0) for key, value in features.items()}
    labels = torch.ones_like(points[..., 0], dtype=torch.long)
    multimask = torch.ones(len(points), dtype=torch.bool, device=points.device)
    answer = run.student.decode(features, points, labels, multimask=multimask)
    return {"nested": nested_loss(answer, target)}


def _three_rounds(run: Run, *questions: torch.Tensor) -> Losses:
    return _mask_losses(run, 3, *questions)


def _questions(room: Room, each: int) -> tuple[torch.Tensor, ...]:
    """Pictures, masks to ask for, and first prompts."""
    places = room.pool.draw(room.run.stage.batch)
    image = room.scenes.lit(room.pool.images[places])
    target = room.pool.some_masks(places, each).flatten(0, 1)
    box = room.scenes.uniform(0, 1, len(target)) < 0.5
    return image, target, *_first_prompt(room.prompter, target, box), ~box


def _mask_losses(
    run: Run,
    rounds: int,
    image: torch.Tensor,
    target: torch.Tensor,
    points: torch.Tensor,
    labels: torch.Tensor,
    multimask: torch.Tensor,
) -> Losses:
    """What a first prompt and corrections after it give, on one picture for several masks."""
    student, prompter = run.student, Prompter(run.student.device)
    features = student.encode(image)
    losses: Losses = {}
    each = len(target) // len(image)
    features = {key: value.repeat_interleave(each, 0) for key, value in features.items()}
    share = target.flatten(1).mean(1)
    present = (share > 0.002) & (share < 0.9)
    logits = None
    for i in range(rounds):
        answer = student.decode(features, points, labels, logits, multimask=multimask)
        losses[f"round {i}"] = answer_loss(answer, target, multimask, present) / rounds
        logits = _chosen(answer, multimask)
        point, label = prompter.correction(logits, target)
        points, labels = torch.cat([points, point], 1), torch.cat([labels, label], 1)
        multimask = multimask & False
    return losses


def _chosen(answer: Tensors, multimask: torch.Tensor) -> torch.Tensor:
    """The mask a user would correct: detached logits [N, 1, h, w]."""
    best = torch.where(multimask, answer["ious"][:, 1:].argmax(1) + 1, 0)
    index = torch.arange(len(best), device=best.device)
    return answer["masks"][index, best][:, None].detach().clamp(-32, 32)


def _first_prompt(
    prompter: Prompter, target: torch.Tensor, box: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A box where `box` says so, else a click: points [N, 3, 2] and labels."""
    points = torch.cat([prompter.box(target), prompter.click(target)], 1)
    as_box = torch.tensor([2, 3, ABSENT], device=target.device)
    as_click = torch.tensor([ABSENT, ABSENT, 1], device=target.device)
    return points, torch.where(box[:, None], as_box, as_click)


def video_step(room: Room, reel: Reel) -> None:
    """Follow objects through a clip, drawn or real. Keep segmenting stills."""
    scenes, stage = room.scenes, room.run.stage
    kind = stage.clips[min(int(room.run.along * len(stage.clips)), len(stage.clips) - 1)]
    chance = reel.random.random  # on the host: the device is not waited for
    if reel.films and chance() < REAL:
        film = reel.film(kind.batch, kind.frames, kind.objects)
    else:
        places = room.pool.draw(kind.batch)
        pictures, masks = room.pool.images[places], room.pool.masks[places]
        actors = reel.actors(kind.batch, kind.frames)
        film = scenes.clips(pictures, masks, kind.frames, kind.objects, actors)
    target = film.masks.flatten(0, 1).float() / 255
    image = scenes.lit(film.images)
    losses = _from_masks if chance() < 0.4 else _from_points
    box = scenes.uniform(0, 1, len(target)) < 0.5
    longest = LONGEST if chance() < 0.5 else kind.frames - 1
    pace = torch.tensor(1 / longest, device=target.device)
    if chance() < CORRECTED:
        shown = shown_first(target, kind.batch, scenes.uniform(0, 1, len(target)))
        first = *_first_prompt(room.prompter, shown[:, 0], box), ~box
        at = reel.random.choice((kind.frames // 3, 2 * kind.frames // 3))  # a recording each
        known = film.known.flatten(0, 1)
        room.run.learn(losses_at(at), image, target, shown, known, pace, *first)
        return
    prompt = *_first_prompt(room.prompter, target[:, 0], box), ~box
    known = film.known.flatten(0, 1)
    room.run.learn(losses, image, target, known, pace, *prompt, *_questions(room, each=4))


def _from_masks(run: Run, *given: torch.Tensor) -> Losses:
    return _video_losses(run, True, *given)


def _from_points(run: Run, *given: torch.Tensor) -> Losses:
    return _video_losses(run, False, *given)


def _video_losses(
    run: Run,
    by_mask: bool,
    image: torch.Tensor,
    target: torch.Tensor,
    known: torch.Tensor,
    pace: torch.Tensor,
    points: torch.Tensor,
    labels: torch.Tensor,
    multimask: torch.Tensor,
    *questions: torch.Tensor,
) -> Losses:
    T = image.shape[1]
    features = features_of(run.student, image, len(target))
    prompt = FirstPrompt(points, labels, multimask)
    if by_mask:
        nowhere, nobody = torch.zeros_like(points[:, :1]), torch.full_like(labels[:, :1], -1)
        prompt = FirstPrompt(nowhere, nobody, multimask & False, target[:, 0])
    answers = follow(run.student, features, prompt, pace)
    area = target.flatten(2).mean(2)
    total = target.new_zeros(())
    for t, answer in enumerate(answers):
        multi = prompt.multimask | (t > 0)
        present = area[:, t] > 0.0008
        counts = known[:, t] & (area[:, 0] > 0.002)
        total = total + answer_loss(answer, target[:, t], multi, present, counts)
    stills = _mask_losses(run, 2, *questions)
    return {"clip": total / T, "still": torch.stack(list(stills.values())).sum()}


def main() -> None:
    """Run one stage, or several."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", choices=list(STAGES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a model to start from where STATE is empty")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--minutes", type=float, nargs="+", help="of each stage, at most")
    parser.add_argument("--small", action="store_true", help="a few tiny steps, to try it out")
    parser.add_argument("--eager", action="store_true", help="record nothing as CUDA graphs")
    parser.add_argument("--unmeasured", action="store_true", help="no figures at the end")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    minutes = given.minutes or [1e9] * len(given.stages)
    if not all(each > 0 for each in minutes) or (given.steps is not None and given.steps < 1):
        parser.error("--minutes and --steps must be more than 0")
    if len(minutes) != len(given.stages):
        parser.error("--minutes wants a number for each stage")
    try:
        train(
            dict(zip(given.stages, minutes, strict=True)),
            given.data,
            given.state,
            small=given.small,
            start=given.start,
            steps=given.steps,
            seed=given.seed,
            eager=given.eager,
            measured=not given.unmeasured,
        )
    except KeyboardInterrupt:
        print(f"stopped; run it again to go on from {given.state}", file=sys.stderr)  # noqa: T201
        raise SystemExit(130) from None


def train(
    stages: dict[str, float],
    folder: Path,
    state: Path,
    *,
    small: bool = False,
    start: Path | None = None,
    steps: int | None = None,
    seed: int = 0,
    eager: bool = False,
    measured: bool = True,
    config: NanoConfig = NANO,
) -> None:
    """Stages and the minutes of each, the first with reading the data, from the state before."""
    ends = time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")  # of gradients; graphs choose for themselves
    check(folder)
    teacher = Teacher(load_file(folder / FILE), device, 256 if small else 1024)
    state.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    room = None
    for name, minutes in stages.items():
        ends += 60 * minutes
        run = _run(name, config, state, start, ends, device, small=small, steps=steps, eager=eager)
        if room is None:
            room = _room(run, folder, teacher, seed + run.step, small)
        room = replace(room, run=run)
        if name == "video":
            learn_video(room, seed + run.step, SMALL.clips[0] if small else SOLID_FILMS)
        else:
            learn_masks(room)
        run.save()
    if measured and device == "cuda":  # on a CPU the teacher would take an hour
        with torch.no_grad():
            for what, figures in measure.report(run.averaged(), teacher, folder):
                run.log({what: figures})


def learn_masks(room: Room) -> None:
    """The stage of stills."""
    while not room.run.is_done:
        room.refresh()
        masks_step(room)


def learn_video(room: Room, seed: int, kind: Clip) -> None:
    """The stage of clips: drawn, real, and of solids, `kind.batch` of them."""
    films = real_films(room.clips, room.teacher, room.run.student.device)
    films += solid_films(room.solids, kind.batch, kind.frames, kind.objects)
    reel = Reel(films, room.scenes, seed)
    room.run.log({"films": len(films)})
    while not room.run.is_done:
        room.refresh()
        video_step(room, reel)


def _run(
    name: str,
    config: NanoConfig,
    state: Path,
    start: Path | None,
    ends: float,
    device: str,
    *,
    small: bool,
    steps: int | None,
    eager: bool,
) -> Run:
    """A stage where it stands in STATE, at its beginning, or with the weights of a model."""
    stage = SMALL if small else STAGES[name]
    stage = replace(stage, steps=steps) if steps else stage
    known = load_state(state)
    if known is None:
        if start is None:
            raise SystemExit(f"{state} is empty: give a model to start from (--start)")
        known = read_exported(start), {"stage": "", "step": 0}
    arrays, where = known
    step = where["step"] if where["stage"] == name and not where.get("done") else 0
    return Run(name, stage, Student(config, arrays, device), state, step, ends, eager)


def _room(run: Run, folder: Path, taught: Teacher, seed: int, small: bool) -> Room:
    limit = 6 if small else None
    clips = data.read_clips(folder, split="train", limit=1 if small else None)
    pets = data.read_pets(folder, held_out=False, limit=limit)
    photos = [pets, data.clip_photos(clips)]
    photos += [data.read_photos(folder, limit)] if (folder / "photos.tar").exists() else []
    device = run.student.device
    objects = data.read_objects(folder, pets, limit)
    scenes = Scenes(data.joined(*photos), objects, device, seed)
    solids = Solids(device, seed, scenes.photos.images[:400])
    pool = Pool(scenes, taught, solids, run.stage.pool)
    for _ in range(max(1, run.stage.pool // (FILLED * run.stage.fresh))):
        pool.add(run.stage.fresh)
    run.log({"pool": pool.filled, "photos": len(scenes.photos.images), "objects": len(objects)})
    return Room(run, scenes, pool, Prompter(device, seed + 1), taught, solids, clips)


if __name__ == "__main__":
    main()
