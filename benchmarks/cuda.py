"""SAM 2 and its sister models on one GPU: checked against float32, and timed.

    python benchmarks/cuda.py [--out FOLDER] [--models tiny,base-plus,large] [--only NAME,...]

Under eight minutes on an H200 for these. `--models tiny,edgetam,efficienttam-s` is the same of the
sister models. Random weights, 1024 pixels, bf16, frames of 960 x 540 given as host arrays; one
object with a full bank unless said otherwise. Writes `cuda.json` and `cuda.md`. Needs torch with
CUDA and Triton. A part that fails is reported as such, and the others run all the same.

`--device cpu --frames 4 --image-size 256` runs the same steps on the CPU in float32, a little of
each: it shows that the benchmark works, and its figures mean nothing.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(ROOT / "docs")]

import numpy as np  # noqa: E402
import torch  # noqa: E402

from samgraph.models.loading import find_config, load_model  # noqa: E402
from samgraph.models.sam2.config import CONFIGS  # noqa: E402
from samgraph.predict.model import Model  # noqa: E402
from tests import tolerances, weights  # noqa: E402

SIZE_HW = (540, 960)
ADDED = ("token_mixer.conv", "mixer.conv2", "ffn.conv2")  # convolutions of branches of RepViT
FRAMES, WARM = 200, 60
Row = tuple[str, str, str]  # what, found, wanted

# What issue and tests ask for, in the order of the report.
GOALS = {
    "frames per second, tiny": 300, "frames per second, base-plus": 220,
    "frames per second, large": 120, "frames per second, tiny, 4 objects": 180,
    "frames per second, tiny, 16 objects": 70,
    "image encoder, tiny, ms": 1.3, "image encoder, base-plus, ms": 2.6,
    "image encoder, large, ms": 6.5, "memory attention, tiny, ms": 1.2,
    "mask decoder, tiny, ms": 0.35, "memory encoder, tiny, ms": 0.2,
    "everything, 1800 x 1200, tiny, ms": 60, "click on an encoded image, tiny, ms": 3,
    "start to first tracked frame, kernel cache empty, s": 15,
    "start to first tracked frame, kernel cache filled, s": 6,
}  # fmt: skip


class Report:
    """Figures by name, what failed among them; and the device and sizes they are measured with."""

    def __init__(self, device: str, frames: int, image_size: int | None) -> None:
        self.device, self.frames, self.image_size = device, frames, image_size
        self.found: dict[str, Any] = {"device": device, "torch": torch.__version__}
        self.is_gpu = device != "cpu"
        if self.is_gpu:
            self.found["device"] = torch.cuda.get_device_name(device)
        self.warm = min(WARM, frames // 2)  # frames before the clock is started

    def load(self, source: Any, **options: Any) -> Any:
        """A model on the device; one of SAM 2's size and its sisters at the size of the images."""
        if source != "samgraph-nano":
            options["image_size"] = self.image_size
        return load_model(source, device=self.device, engine="torch", **options)

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.is_gpu:
            torch.cuda.synchronize()

    def part(self, name: str, work: Callable[[], None]) -> None:
        """Run one part; an error costs its figures alone."""
        started = time.perf_counter()
        try:
            work()
        except Exception as error:
            self.found[f"{name}: failed"] = f"{type(error).__name__}: {error}"[:300]
            traceback.print_exc()
        self.wait()
        print(f"-- {name}: {time.perf_counter() - started:.1f} s", flush=True)

    def note(self, name: str, value: float) -> None:
        """One figure."""
        self.found[name] = round(float(value), 5)
        print(f"{name}: {value:.4g}", flush=True)

    def write(self, folder: Path) -> None:
        """`cuda.json` and `cuda.md`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cuda.json").write_text(json.dumps(self.found, indent=1))
        lines = ["| what | found | wanted |", "|---|---|---|"]
        for name, value in self.found.items():
            goal = GOALS.get(name)
            lines.append(f"| {name} | {value} | {'' if goal is None else goal} |")
        (folder / "cuda.md").write_text("\n".join(lines) + "\n")


def config_name(name: str) -> str:
    """The config of a model; a size alone is one of SAM 2.1."""
    return full if (full := f"sam2.1-{name}") in CONFIGS else name


def random_weights(name: str) -> dict[str, Any]:
    """Weights of the sizes and spreads of `tests/weights.py`, drawn quickly.

    Batch norms, which only sister models have, do not normalise what random weights give them. So
    their statistics are spread out, and branches that are added to what goes on are halved.
    """
    rng, made = np.random.default_rng(0), {}
    family, config = find_config(config_name(name))
    for key, shape in family.weight_shapes(config).items():
        drawn = rng.standard_normal(shape, np.float32)
        spread, centre = weights._spread_and_centre(key, tuple(shape))
        if key.endswith("running_mean"):
            spread, centre = 0.2, 0.0
        elif key.endswith("running_var"):
            drawn, spread, centre = np.exp(0.3 * drawn), 1.0, 0.0
        elif len(shape) == 4 and any(branch in key for branch in ADDED):
            spread /= 2
        made[key] = np.asarray(drawn * spread + centre, np.float32)
    return made


def milliseconds(report: Report, work: Callable[[], Any], runs: int = 20) -> float:
    """The least mean time of three rounds, on the device."""
    if not report.is_gpu:
        started = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - started)
    for _ in range(3):
        work()
    times = []
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(runs):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / runs)
    return min(times)


def part_inputs(core: Any, objects: int, device: str) -> dict[str, dict[str, Any]]:
    """Random inputs of the graphs that a tracked frame runs, with a full bank."""
    config, draw = core.config, torch.Generator(device).manual_seed(0)
    C, E, L, S = config.channels, config.grid, config.mask_size, config.image_size
    frames, pointers, pages = config.memory_frames, config.max_pointers, 8 + 8 * objects

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device=device, generator=draw)

    def rows(most: int, *shape: int) -> Any:
        return torch.randint(0, most, shape, device=device, generator=draw)

    maps = {name: normal(1, *shape) for name, shape in config.feature_maps.items()}
    del maps["embedding"]  # which is conditioned for each object
    return {
        "image_encoder": {"image": normal(1, 3, S, S)},
        "attend_bank": {
            "embedding": normal(1, C, E, E),
            "pages": normal(pages, config.memory_tokens, config.memory_channels).bfloat16(),
            "frames": rows(pages, objects, frames),
            "slots": torch.arange(frames, device=device).repeat(objects, 1),
            "pointer_rows": normal(64, C),
            "pointers": rows(64, objects, pointers),
            "pointer_times": torch.rand((objects, pointers), device=device, generator=draw),
        },
        "decode_tracked": {
            "embedding": normal(objects, C, E, E),
            **{name: value.expand(objects, -1, -1, -1) for name, value in maps.items()},
        },
        "memory_encoder": {
            "embedding": normal(1, C, E, E),
            "mask": normal(objects, 1, L, L) * 5,
            "object_score": torch.ones((objects, 1), device=device),
            "binary": torch.zeros(objects, dtype=torch.bool, device=device),
        },
    }


TITLES = {
    "image_encoder": "image encoder",
    "attend_bank": "memory attention",
    "decode_tracked": "mask decoder",
    "memory_encoder": "memory encoder",
}


def own_graph(core: Any, graph: str) -> str:
    """Its name in the model: variants with a pooled memory have their own attention."""
    pooled = core.frame_graphs[-1].removeprefix("memory_attention")
    return graph + pooled if graph == "attend_bank" else graph


def time_parts(report: Report, name: str, core: Any) -> None:
    """Each graph of a tracked frame, inputs copied in and outputs out."""
    for graph, inputs in part_inputs(core, 1, report.device).items():
        own = own_graph(core, graph)
        taken = milliseconds(report, lambda own=own, inputs=inputs: core.run(own, **inputs))
        report.note(f"{TITLES[graph]}, {name}, ms", taken)


def check_parts(report: Report, name: str, core: Any, exact: Any) -> None:
    """Each graph against float32, relative to the size of its outputs: bounds of the tests."""
    for graph, inputs in part_inputs(core, 2, report.device).items():
        own = own_graph(core, graph)
        found, wanted = core.run(own, **inputs), exact.run(own, **inputs)
        for output, value in wanted.items():
            error = float((found[output] - value).norm() / value.norm())
            report.note(f"error of {graph}.{output}, {name}", error)
            usual = tolerances.CUDA_BF16[graph]
            most = tolerances.CUDA_BF16_OF.get((core.family, graph), usual)
            if not error <= most:
                report.found[f"error of {graph}.{output}, {name}: failed"] = f"> {most}"


def check_video(report: Report) -> None:
    """Masks of the built-in model over a whole video, against float32 on the same GPU."""
    from demo_clip import make_clip

    clip = make_clip()
    found: dict[str, list[Any]] = {}
    rounded = ("bf16", "fp16", "tf32") if report.is_gpu else ("bf16",)
    count = min(len(clip.frames), report.frames)
    for precision in (*rounded, "fp32"):
        model = Model(report.load("samgraph-nano", precision=precision))
        video = model.video(clip.frames[:count])
        video.add(frame=0, object=1, mask=clip.masks[0])
        found[precision] = [result.masks[0] for result in video.track()]
    for precision in rounded:
        pairs = zip(found[precision], found["fp32"], strict=True)
        shares = [(a & b).sum() / max((a | b).sum(), 1) for a, b in pairs]
        report.note(
            f"IoU of masks with those of fp32, built-in model, {precision}", np.mean(shares)
        )
    truth = [
        (a & b).sum() / max((a | b).sum(), 1)
        for a, b in zip(found["bf16"], clip.masks[:count], strict=True)
    ]
    report.note("IoU of masks with the true ones, built-in model, bf16", np.mean(truth))


def frames_of(count: int) -> list[Any]:
    """Noise, a few frames of it again and again."""
    rng = np.random.default_rng(1)
    some = [rng.integers(0, 256, (*SIZE_HW, 3), np.uint8) for _ in range(16)]
    return [some[i % len(some)] for i in range(count)]


def frames_per_second(
    report: Report,
    model: Model,
    objects: int,
    *,
    masks: bool = False,
    prompted: int = 1,
    count: int | None = None,
) -> float:
    """Tracking after the bank is full, end to end."""
    count = report.frames if count is None else count
    video = model.video(frames_of(count))
    for number in range(objects):
        for frame in range(prompted):
            at = [(100 + 40 * number, 200 + 10 * number)]
            video.add(frame=frame, object=number + 1, points=at)
    started = 0.0
    for result in video.track():
        if masks:
            result.masks  # noqa: B018
        if result.index == report.warm:
            report.wait()
            started = time.perf_counter()
    report.wait()
    return (count - 1 - report.warm) / (time.perf_counter() - started)


def best_rate(*arguments: Any, **named: Any) -> float:
    """The best of three videos: the first ones capture."""
    return max(frames_per_second(*arguments, **named) for _ in range(3))


def time_tracking(report: Report, name: str, model: Model) -> None:
    """Whole tracked frames, and how their cost grows."""
    report.note(f"frames per second, {name}", best_rate(report, model, 1))
    rate = best_rate(report, model, 1, masks=True)
    report.note(f"frames per second, {name}, masks downloaded", rate)
    if name != "tiny":
        return
    for objects in (4, 16):
        count = report.frames if objects < 16 else min(report.frames, 140)
        rate = best_rate(report, model, objects, count=count)
        report.note(f"frames per second, {name}, {objects} objects", rate)
    rate = best_rate(report, model, 1, prompted=4)
    report.note(f"frames per second, {name}, 4 prompted frames", rate)
    rate = frames_per_second(report, model, 1, count=5 * report.frames)
    report.note(f"frames per second, {name}, 1000 frames", rate)


def time_images(report: Report, model: Model) -> None:
    """A click, and automatic masks."""
    picture = np.random.default_rng(2).integers(0, 256, (1200, 1800, 3), np.uint8)
    image = model.image(picture)
    for title, ask in (
        ("click on an encoded image, tiny, ms", lambda: image.predict(points=[(500, 375)])),
        ("click to full-size masks, tiny, ms", lambda: image.predict(points=[(500, 375)]).masks),
        ("image to embedding, 1800 x 1200, tiny, ms", lambda: model.image(picture)),
        (
            "everything, 1800 x 1200, tiny, ms",
            lambda: model.everything(
                picture, progress=False, pred_iou_thresh=0.5, stability_score_thresh=0.6
            ),
        ),
    ):
        times = []
        for _ in range(5):
            started = time.perf_counter()
            found = ask()
            report.wait()
            times.append(time.perf_counter() - started)
        report.note(title, 1e3 * min(times))
    report.note("everything, masks kept", len(found))


def time_start(report: Report, core: Any) -> None:
    """A new process, from its start to the first tracked frame."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        Model(core).save(path)
        environment = {**os.environ, "TRITON_CACHE_DIR": str(Path(folder) / "kernels")}
        for state in ("empty", "filled"):
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, __file__, "--start", str(path), "--device", report.device],
                env=environment,
                check=True,
            )
            taken = time.perf_counter() - started
            report.note(f"start to first tracked frame, kernel cache {state}, s", taken)


def start(path: str, device: str) -> None:
    """What a new process does: load, prompt, track one frame."""
    times = [time.perf_counter()]
    model = Model(load_model(path, device=device, engine="torch"))
    times.append(time.perf_counter())
    video = model.video(frames_of(3))
    video.add(frame=0, object=1, points=[(400, 200)])
    times.append(time.perf_counter())
    for result in video.track():
        if result.index == 1:
            result.masks  # noqa: B018
            break
    times.append(time.perf_counter())
    spans = [round(b - a, 2) for a, b in pairwise(times)]
    print(f"start: load {spans[0]}, prompt {spans[1]}, track {spans[2]} s", flush=True)


def time_reference(report: Report, name: str, made: dict[str, Any]) -> None:
    """Meta's own predictor, eager with autocast, on the same frames; where `sam2` is installed."""
    from PIL import Image

    from tests.parity.reference import build_reference

    predictor = build_reference(f"sam2.1_{name.replace('-', '_')}", state=made).cuda()
    count, warm, started = 80, 30, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number, frame in enumerate(frames_of(count)):
            Image.fromarray(frame).save(Path(folder) / f"{number:05}.jpg")
        with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
            state = predictor.init_state(folder)
            predictor.add_new_points_or_box(
                state, 0, 1, points=np.array([[100, 200]], np.float32), labels=np.array([1])
            )
            for index, _, _ in predictor.propagate_in_video(state):
                if index == warm:
                    torch.cuda.synchronize()
                    started = time.perf_counter()
            torch.cuda.synchronize()
    report.note(
        f"frames per second, {name}, Meta's predictor, eager",
        (count - 1 - warm) / (time.perf_counter() - started),
    )


def run_model(report: Report, name: str, only: set[str]) -> None:
    """All that is measured of one model."""
    made = random_weights(name)
    if report.is_gpu:
        torch.cuda.reset_peak_memory_stats()
    core: Any = report.load(made, config=config_name(name))
    model = Model(core)
    jobs: dict[str, Callable[[], None]] = {
        "parts": lambda: time_parts(report, name, core),
        "tracking": lambda: time_tracking(report, name, model),
    }
    if name == "tiny":
        jobs["images"] = lambda: time_images(report, model)
        jobs["start"] = lambda: time_start(report, core)
    for job, work in jobs.items():
        if not only or job in only:
            report.part(f"{job}, {name}", work)
    if report.is_gpu:
        report.note(f"peak memory, {name}, GB", torch.cuda.max_memory_allocated() / 1e9)
    has_reference = importlib.util.find_spec("sam2") is not None and config_name(name) != name
    if report.is_gpu and has_reference and (not only or "reference" in only):
        report.part(f"reference, {name}", lambda: time_reference(report, name, made))
    if not only or "checks" in only:
        exact = report.load(made, config=config_name(name), precision="fp32")
        report.part(f"checks, {name}", lambda: check_parts(report, name, core, exact))


def main() -> None:
    """Everything, or what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/cuda"))
    parser.add_argument("--models", default="tiny,base-plus,large")
    parser.add_argument(
        "--only", default="", help="parts, tracking, images, start, checks, video, ..."
    )
    parser.add_argument("--frames", type=int, default=FRAMES, help="of a tracked video")
    parser.add_argument("--device", default="cuda", help="`cpu`: a trial, without a GPU")
    parser.add_argument("--image-size", type=int, help="instead of the model's own")
    parser.add_argument("--start", help="be the process whose start is timed")
    arguments = parser.parse_args()
    if arguments.start:
        start(arguments.start, arguments.device)
        return
    only = set(filter(None, arguments.only.split(",")))
    report = Report(arguments.device, arguments.frames, arguments.image_size)
    began = time.perf_counter()
    if not only or "video" in only:
        report.part("video", lambda: check_video(report))
    for name in arguments.models.split(","):
        report.part(name, lambda name=name: run_model(report, name, only))
        if report.is_gpu:
            torch.cuda.empty_cache()
        report.write(arguments.out)
    report.note("seconds in all", time.perf_counter() - began)
    report.write(arguments.out)


if __name__ == "__main__":
    main()
