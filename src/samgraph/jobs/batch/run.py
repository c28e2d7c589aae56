"""A batch run: from inputs to shards, on workers of any kind, from the start or from a stop.

job = BatchJob(("photos",), Path("out"), TaskOptions("everything", "out"))
report = run_batch(job, WorkerSettings(job.task, "samgraph-nano"), BatchOptions())
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from samgraph.errors import OptionError, PromptError
from samgraph.jobs.batch.driving import Workers, drive
from samgraph.jobs.batch.folder import PLAN, BatchFolder, ShardOptions
from samgraph.jobs.batch.inputs import Input, InputOptions, find_inputs
from samgraph.jobs.batch.local import LocalWorkers
from samgraph.jobs.batch.on_ray import RayOptions, RayWorkers
from samgraph.jobs.batch.plan import Plan
from samgraph.jobs.batch.scheduler import ScheduleOptions, Scheduler, Verdict
from samgraph.jobs.batch.settings import WorkerSettings
from samgraph.jobs.batch.shards import Destination, find_shard_format
from samgraph.jobs.batch.tasks import TaskOptions
from samgraph.jobs.interruption import interrupt_on_terminate
from samgraph.progress import Progress, ShowProgress

IDLE_SECONDS = 0.25
MASK_TASKS = ("segment", "everything")


@dataclass(frozen=True, slots=True)
class BatchJob:
    """Everything that decides the results of a run.

    Args:
        inputs: Files, folders, patterns, addresses, and manifests.
        out: The folder of the run.
        task: What is done with every input.
        find: How inputs are found.
        format: That of shards of masks: coco, parquet or jsonl.
        shard_size: The most inputs per shard.
        to: The address where shards and embeddings go, instead of the folder.
    """

    inputs: tuple[str, ...]
    out: Path
    task: TaskOptions
    find: InputOptions = field(default_factory=InputOptions)
    format: str = "coco"
    shard_size: int = 1000
    to: str | None = None

    def __post_init__(self) -> None:
        if self.to is not None and self.task.task == "track":
            raise OptionError("folders of tracked videos go to a folder", got=f"`{self.to}`")

    @property
    def shards(self) -> ShardOptions:
        """How results are divided into files."""
        name = self.format if self.task.task in MASK_TASKS else "index"
        destination = Destination(self.out if self.to is None else self.to)
        return ShardOptions(find_shard_format(name), destination, self.shard_size)

    def described(self) -> dict[str, Any]:
        """What distinguishes the run from others, for `run.json`; inputs may be added to it."""
        return {
            "kind": "batch",
            **self.task.described(),
            "format": self.shards.format.name(0).split("-")[-1].partition(".")[2],
            "shard_size": self.shard_size,
            "to": self.to,
        }


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How a job is run; the results do not depend on it.

    Args:
        schedule: Workers, groups, retries and limits.
        ray: Ray instead of processes.
        retry_failed: Try inputs again that failed in an earlier run.
        progress: See `samgraph.progress`.
    """

    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    ray: RayOptions | None = None
    retry_failed: bool = False
    progress: ShowProgress = None


@dataclass(frozen=True, slots=True)
class BatchReport:
    """How a run ended.

    Args:
        total: Inputs that were given.
        done: Inputs with a result, of this and earlier runs.
        failed: Inputs without, by reason.
        damaged: Videos with a result, of which frames were skipped or guessed.
        skipped: Inputs that an earlier run had ended.
        without_prompt: Inputs that were left out because nothing was asked about them.
        rate: Inputs per second of this run; None where there was nothing to do.
    """

    total: int
    done: int
    failed: dict[str, int]
    damaged: int
    skipped: int
    without_prompt: int
    rate: float | None


def run_batch(
    job: BatchJob,
    settings: WorkerSettings,
    options: BatchOptions,
    make_workers: Callable[[], Workers[Input]] | None = None,
) -> BatchReport:
    """Work on every input that is not done, and write shards.

    Args:
        job: What is done.
        settings: The workers' model.
        options: How.
        make_workers: Other workers than processes or Ray.

    Raises:
        OutputError: The folder belongs to another run, or cannot be written.
        SamgraphError: The inputs, or the model, cannot be used.
    """
    folder = BatchFolder(job.out, job.described(), job.shards, retry_failed=options.retry_failed)
    try:
        with interrupt_on_terminate():
            return _run(job, folder, settings, options, make_workers)
    finally:
        folder.close()


def _run(
    job: BatchJob,
    folder: BatchFolder,
    settings: WorkerSettings,
    options: BatchOptions,
    make_workers: Callable[[], Workers[Input]] | None,
) -> BatchReport:
    counts = {"skipped": 0, "without_prompt": 0}

    def is_to_do(found: Input) -> bool:
        if job.find.needs_prompts and not found.prompts:
            counts["without_prompt"] += 1
            return False
        if folder.is_done(found):
            counts["skipped"] += 1
            return False
        return True

    plan = Plan(folder.path / PLAN, find_inputs(job.inputs, job.find), is_to_do)
    try:
        if counts["without_prompt"] and not plan.count + counts["skipped"]:
            raise PromptError(
                "no input has a prompt",
                got=f"{counts['without_prompt']} inputs",
                hint="--prompts FILE, or a manifest with boxes or points",
            )
        rate = None
        if plan.count:
            rate = _work(plan, folder, settings, options, make_workers, counts["skipped"])
        folder.finish()
        failed: dict[str, int] = {}
        for _, reason in folder.failed.values():
            failed[reason] = failed.get(reason, 0) + 1
        total = plan.count + counts["skipped"]
        return BatchReport(total, folder.succeeded, failed, folder.damaged, **counts, rate=rate)
    finally:
        plan.close()


def _work(
    plan: Plan,
    folder: BatchFolder,
    settings: WorkerSettings,
    options: BatchOptions,
    make_workers: Callable[[], Workers[Input]] | None,
    skipped: int,
) -> float:
    """Work on the inputs of a plan; inputs per second."""
    schedule = options.schedule
    workers: Workers[Input]
    if make_workers is not None:
        workers = make_workers()
    elif options.ray is not None:
        workers = on_ray = RayWorkers(settings, options.ray)
        schedule = replace(schedule, workers=schedule.workers or on_ray.capacity())
    else:
        workers = LocalWorkers(settings)
    scheduler = Scheduler(iter(plan), schedule)
    shown = options.progress
    progress = Progress(plan.count + skipped, "inputs", done=skipped, show=shown)
    counted = 0

    def record(verdicts: list[Verdict[Input]]) -> None:
        nonlocal counted
        folder.record(verdicts)
        if folder.acknowledged > counted:
            progress.advance(folder.acknowledged - counted)
            counted = folder.acknowledged

    try:
        with progress:
            drive(scheduler, workers, record, meet=folder.meet, idle=IDLE_SECONDS)
            return progress.rate
    finally:
        workers.close()
