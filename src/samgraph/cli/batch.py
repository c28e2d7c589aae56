"""`samgraph batch`: many files, on all cores or on Ray, resumable."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from samgraph.cli.everything import everything_options
from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.option_groups import SectionedCommand, option_group, section
from samgraph.cli.options import FilePath, ModelChoice, model_options
from samgraph.cli.track import every_option, max_objects_option, tracking_options
from samgraph.errors import OptionError, printable
from samgraph.formats.table import FORMATS
from samgraph.jobs.batch.inputs import InputOptions
from samgraph.jobs.batch.on_ray import LOCAL, RayOptions
from samgraph.jobs.batch.run import MASK_TASKS, BatchJob, BatchOptions, BatchReport, run_batch
from samgraph.jobs.batch.scheduler import ScheduleOptions
from samgraph.jobs.batch.settings import WorkerSettings, cores, default_workers, is_gpu
from samgraph.jobs.batch.tasks import TASKS, Task, TaskOptions
from samgraph.jobs.track import TrackingOptions
from samgraph.jobs.track_everything import SearchOptions
from samgraph.models.loading import weights_file
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.video.discovery import POINTS_PER_SIDE, DiscoveryOptions
from samgraph.progress import pace

GPU_BATCH = 4
MASK_FORMATS = ("coco", "parquet", "jsonl")
_EXAMPLES = """
\b
Examples:
  samgraph batch photos/ -o out --task everything
  samgraph batch photos/ --prompts boxes.json -o out --task segment --format parquet
  samgraph batch manifest.jsonl -o out --task segment --workers 4
  samgraph batch clips.csv -o out --task track --format davis
  samgraph batch clips/ -o out --task track --everything --format mot --on-damage skip
  samgraph batch "s3://bucket/photos/*.jpg" -o out --to s3://bucket/masks --task everything
  samgraph batch manifest.parquet -o out --task embed --ray auto --gpus-per-worker 0.5
"""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How many workers there are, and what each may take.

    Args:
        workers: None: one per core up to eight, one on a GPU, what fits on Ray.
        batch_size: Inputs that go through the encoder at once; None: 4 on a GPU, else 1.
        retries: Further attempts at an input whose failure may pass.
        timeout: The most seconds for an input.
        ray: The address of Ray; None for processes.
        cpus_per_worker: On Ray.
        gpus_per_worker: On Ray.
    """

    workers: int | None = None
    batch_size: int | None = None
    retries: int = 2
    timeout: float | None = None
    ray: str | None = None
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0

    def __post_init__(self) -> None:
        if self.ray is None and (self.cpus_per_worker, self.gpus_per_worker) != (1.0, 0.0):
            raise OptionError(
                "--cpus-per-worker and --gpus-per-worker are for --ray",
                hint="processes share a device by --workers, and have --threads each",
            )

    def schedule(self, task: str, device: str) -> ScheduleOptions:
        """How inputs are divided among workers."""
        is_track = task == "track"
        batch = self.batch_size or (GPU_BATCH if self.gpus_per_worker or is_gpu(device) else 1)
        return ScheduleOptions(
            workers=self.workers or (0 if self.ray else default_workers(device)),
            batch=1 if is_track else batch,
            ahead=1 if is_track else 3,
            retries=self.retries,
            seconds_per_input=self.timeout,
        )

    @property
    def ray_options(self) -> RayOptions | None:
        """What a worker takes of Ray; None for processes."""
        if self.ray is None:
            return None
        return RayOptions(self.ray, self.cpus_per_worker, self.gpus_per_worker)


worker_options = option_group(
    "how",
    WorkerOptions,
    click.option(
        "--workers", type=click.IntRange(min=1),
        help="Processes, each with its own model; by default one per core up to 8, one on a GPU.",
    ),
    click.option(
        "--batch-size", type=click.IntRange(1, 64),
        help="Images that go through the encoder at once; by default 4 on a GPU, else 1.",
    ),
    click.option(
        "--retries", type=click.IntRange(0, 100), default=2, show_default=True,
        help="Further attempts at a file whose failure may pass.",
    ),
    click.option(
        "--timeout", type=click.FloatRange(min=0.1), metavar="SECONDS",
        help="The most time for a file; its worker is then killed and replaced.",
    ),
    click.option(
        "--ray", is_flag=False, flag_value=LOCAL, metavar="[ADDRESS]",
        help="Run on Ray: started here, or found at ADDRESS (`auto`: the one that runs here).",
    ),
    click.option(
        "--cpus-per-worker", type=click.FloatRange(min=0), default=1.0, show_default=True,
        help="On Ray.",
    ),
    click.option(
        "--gpus-per-worker", type=click.FloatRange(min=0), default=0.0, show_default=True,
        help="On Ray; 0.5 lets two workers share a GPU.",
    ),
)  # fmt: skip
find_options = option_group(
    "find",
    InputOptions,
    click.option(
        "--prompts", type=FilePath(), metavar="FILE",
        help="Prompts for the inputs: a manifest, COCO with boxes, or a folder of YOLO boxes.",
    ),
    click.option("--remote", is_flag=True, help="Let manifests name addresses (s3://, https://)."),
)  # fmt: skip
search_options = option_group(
    "search",
    SearchOptions,
    click.option(
        "--everything", is_flag=True,
        help="track: in videos without a prompt, find and track everything.",
    ),
    every_option,
    max_objects_option,
)  # fmt: skip


@click.command(cls=SectionedCommand, epilog=_EXAMPLES)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@section(
    "Task",
    click.option(
        "--task", type=click.Choice(TASKS), required=True,
        help="segment prompts, everything, track objects through videos, or embed images.",
    ),
    find_options,
    click.option("--all", "all_masks", is_flag=True, help="segment: three masks per prompt."),
)  # fmt: skip
@section(
    "Output",
    click.option(
        "-o", "--output", "out", required=True, type=FilePath(path_type=Path), metavar="OUT",
        help="The folder of the run; the same command again goes on with it.",
    ),
    click.option(
        "--format", "formats", multiple=True, metavar="NAME",
        help=f"Masks: {', '.join(MASK_FORMATS)} (coco by default). Videos: what `track` writes "
        "(davis by default), may be repeated.",
    ),
    click.option(
        "--shard-size", type=click.IntRange(1, 100_000), default=1000, show_default=True,
        help="The most inputs per file of masks.",
    ),
    click.option(
        "--to", metavar="ADDRESS",
        help="Where files of masks and embeddings go instead (s3://bucket/folder).",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON."),
)  # fmt: skip
@section("Videos", search_options, tracking_options)
@section("Workers", worker_options)
@section(
    "Run",
    click.option(
        "--retry-failed", is_flag=True, help="Try files again that failed in an earlier run."
    ),
    click.option(
        "--progress/--quiet", default=True,
        help="Print progress and a summary (the default), or only what is wrong.",
    ),
)  # fmt: skip
@section("Automatic masks", everything_options)
@section("Model", model_options)
def command(
    inputs: tuple[str, ...],
    task: str,
    find: InputOptions,
    all_masks: bool,
    out: Path,
    formats: tuple[str, ...],
    shard_size: int,
    to: str | None,
    as_json: bool,
    search: SearchOptions,
    tracking: TrackingOptions,
    how: WorkerOptions,
    retry_failed: bool,
    progress: bool,
    options: EverythingOptions,
    choice: ModelChoice,
) -> ExitCode:
    """Work on every INPUT: files, folders, patterns, addresses, or manifests.

    A manifest is CSV, JSON lines or Parquet with a row per object: path, and box (or x0,y0,x1,y1)
    or points and negatives, label, and for videos frame and object. An input is done when its
    result is on the disk: after a stop of any kind the same command goes on, loses nothing and
    writes nothing twice. Files that fail are listed in failures.jsonl, and the code is 3.
    """
    chosen = _formats(task, formats)
    kind = cast("Task", task)
    where = os.path.abspath(out) if to is None else to
    found = _discovery(task, search, options)
    doing = TaskOptions(kind, where, all_masks, options, chosen, tracking, found)
    needs_prompts = task == "segment" or (task == "track" and found is None)
    find = replace(find, is_video=task == "track", needs_prompts=needs_prompts)
    job = BatchJob(inputs, out, doing, find, chosen[0], shard_size, to)
    schedule = how.schedule(task, choice.device)
    run = BatchOptions(schedule, how.ray_options, retry_failed, progress)
    report = run_batch(job, _settings(choice, doing, how, schedule.workers), run)
    if as_json:
        click.echo(json.dumps(_summary(report, out), indent=2))
    return _print(report, out, quiet=as_json or not progress)


def _discovery(
    task: str, search: SearchOptions, masks: EverythingOptions
) -> DiscoveryOptions | None:
    """How everything is found in videos, if it is; a grid that was not chosen is that of videos."""
    if not search.everything:
        search.refuse_unused()
        return None
    if task != "track":
        raise OptionError("--everything is for videos", got=f"--task {task}", expected="track")
    grid = click.get_current_context().get_parameter_source("points_per_side")
    if grid is ParameterSource.DEFAULT:
        masks = replace(masks, points_per_side=POINTS_PER_SIDE)
    return replace(search.discovery(), masks=masks)


def _formats(task: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """The formats of a task: one for masks, any number for videos."""
    known: tuple[str, ...] = MASK_FORMATS if task in MASK_TASKS else ()
    known = tuple(FORMATS) if task == "track" else known
    default = "davis" if task == "track" else "coco"
    names = tuple(dict.fromkeys(given)) or (default,)
    wrong = [name for name in names if given and name not in known]
    if wrong:
        expected = ", ".join(known) or "none: embeddings have one"
        raise OptionError(f"{task} does not write `{wrong[0]}`", expected=expected)
    if task in MASK_TASKS and len(names) > 1:
        raise OptionError("masks have one --format", got=", ".join(names))
    return names


def _settings(
    choice: ModelChoice, task: TaskOptions, how: WorkerOptions, workers: int
) -> WorkerSettings:
    """The workers' model, with the cores divided among them."""
    compiled = choice.compile_options()
    if compiled.threads is None:
        each = int(how.cpus_per_worker) if how.ray is not None else cores() // workers
        compiled = replace(compiled, threads=max(1, each))
    file = weights_file(choice.model)
    model = choice.model if file is None else os.path.abspath(os.path.expanduser(file))
    devices = tuple(choice.device.split(","))
    return WorkerSettings(task, model, devices, choice.image_size, compiled)


def _summary(report: BatchReport, out: Path) -> dict[str, Any]:
    return {
        "output": str(out),
        "inputs": report.total,
        "done": report.done,
        "failed": report.failed,
        "damaged": report.damaged,
        "skipped": report.skipped,
        "without_prompt": report.without_prompt,
        "inputs_per_second": None if report.rate is None else round(report.rate, 4),
    }


def _print(report: BatchReport, out: Path, *, quiet: bool) -> ExitCode:
    """Print how the run ended; the exit code."""
    rate = "" if report.rate is None else f", {pace(report.rate)}"
    before = f", {report.skipped} skipped, ended by an earlier run" if report.skipped else ""
    if not quiet:
        if report.without_prompt:
            click.echo(f"{report.without_prompt} without a prompt, left out", err=True)
        text = f"{report.done} done in {out}{before}{rate}"
        click.echo(printable(text), err=True)
    if report.damaged:
        text = f"{report.damaged} with damage, see `damage` in {out / 'index-*.jsonl'}"
        click.echo(printable(text), err=True)
    if not report.failed:
        return ExitCode.DAMAGE if report.damaged else ExitCode.DONE
    count = sum(report.failed.values())
    click.echo(printable(f"{count} failed, listed in {out / 'failures.jsonl'}:"), err=True)
    for reason, number in sorted(report.failed.items(), key=lambda item: -item[1]):
        click.echo(printable(f"  {number} {reason}"), err=True)
    return ExitCode.DAMAGE if report.done else ExitCode.BAD_INPUT
