"""`python -m tests.jobs.batch.driver INPUTS OUT [ray]`: a run of toy workers, to be killed."""

import sys
from pathlib import Path

from samgraph.jobs.batch.on_ray import RayOptions
from samgraph.jobs.batch.run import BatchJob, BatchOptions, BatchReport, run_batch
from samgraph.jobs.batch.scheduler import ScheduleOptions
from samgraph.jobs.batch.settings import WorkerSettings
from samgraph.jobs.batch.tasks import TaskOptions
from tests.jobs.batch.workers import ToyRunner

SHARD_SIZE = 7


def job_of(inputs: Path, out: Path) -> BatchJob:
    return BatchJob((str(inputs),), out, TaskOptions("everything", str(out)), shard_size=SHARD_SIZE)


def run(inputs: Path, out: Path, *, ray: bool = False) -> BatchReport:
    job = job_of(inputs, out)
    settings = WorkerSettings(job.task, "", make=ToyRunner)
    how = ScheduleOptions(workers=2, batch=2)
    options = BatchOptions(how, RayOptions() if ray else None, progress=False)
    return run_batch(job, settings, options)


if __name__ == "__main__":
    report = run(Path(sys.argv[1]), Path(sys.argv[2]), ray="ray" in sys.argv[3:])
    print(report.done, sum(report.failed.values()))
