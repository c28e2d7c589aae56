"""`samgraph bench`: how long the graphs of a model take to compile and to run, here."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

import click

from samgraph.cli.options import ModelChoice, model_options
from samgraph.errors import GraphError
from samgraph.evaluate.op_profile import OpTiming, peak_gflops, profile_ops
from samgraph.evaluate.speed import FrameTiming, Timing, time_frames, time_graphs
from samgraph.models import find_family
from samgraph.models.sam2.model import Sam2Model
from samgraph.models.sam2.statistics import TYPICAL
from samgraph.runtime import APPROXIMATIONS


@click.command()
@click.option("--graphs", help="Graphs, separated by commas; `all` for all.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--profile", "ops", is_flag=True, help="Time the products of each graph, by themselves."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@partial(model_options, profile="--profiles")
def command(graphs: str | None, runs: int, ops: bool, as_json: bool, choice: ModelChoice) -> None:
    """Time the graphs of a model: compiling without the cache, and the median of --runs runs.

    --profiles takes names separated by commas, `fused,split` by default: graphs that a profile
    compiles differently have a row each. The runs of all graphs are interleaved. Without --graphs
    and --profiles, also what each approximation would gain on a tracked frame.

    With --profile: multiply-adds, megabytes moved, GFLOP/s and the share of this machine's rate,
    measured in the same run, of the products of each graph as the first profile compiles it.
    """
    models: dict[str, Sam2Model] = {}
    for profile in (choice.profile or "fused,split").split(","):
        model = replace(choice, profile=profile).load(cache=False)
        models[model.core.session.options.chosen_profile.name] = model.core
    first = next(iter(models.values()))
    if ops:
        _show_ops(first, _names(graphs, first), runs, as_json)
        return
    timings = time_graphs(models, _names(graphs, first), runs=runs)
    frames = [] if graphs or choice.profile else _approximations(choice, first, runs)
    reason = first.session.reason.partition("; profile")[0]
    if as_json:
        rows = [asdict(timing) for timing in timings]
        found = {"model": first.config.name, "reason": reason, "sizes": TYPICAL, "graphs": rows}
        found["approximations"] = [asdict(timing) for timing in frames]
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{first.config.name} at {first.config.image_size} px: {reason}")
    for line in _table(timings):
        click.echo(line)
    sizes = ", ".join(f"{name}={size}" for name, size in TYPICAL.items())
    click.echo(f"median of {runs} interleaved runs, {sizes}; compiled without the cache")
    for line in _frames_table(frames):
        click.echo(line)


def _approximations(choice: ModelChoice, exact: Sam2Model, runs: int) -> list[FrameTiming]:
    """A tracked frame as it is asked for, and with each approximation that the model has."""
    models = {choice.approximation or "exact": exact}
    if choice.approximation is None:
        for name in sorted(
            find_family(exact.family).approximations, key=list(APPROXIMATIONS).index
        ):
            models[name] = replace(choice, approximation=name).load(cache=False).core
    return time_frames(models, exact.frame_graphs, runs=runs)


def _frames_table(frames: list[FrameTiming]) -> list[str]:
    if len(frames) < 2:
        return []
    rows = [("approximation", "tracked frame", "faster", "what it does")]
    for timing in frames:
        found = APPROXIMATIONS.get(timing.approximation)
        faster = f"{frames[0].seconds / timing.seconds:.2f}x"
        spent = f"{1e3 * timing.seconds:.1f} ms"
        rows.append((timing.approximation, spent, faster, found.does if found else ""))
    return ["", *_aligned(rows, left=(0, 3))]


def _show_ops(model: Sam2Model, names: list[str], runs: int, as_json: bool) -> None:
    """The products of each graph, and the machine's rate."""
    found: dict[str, object] = {"model": model.config.name, "reason": model.session.reason}
    for name in names:
        peak = peak_gflops(model.session_for(name), runs)
        timings = profile_ops(model, name, runs=runs)
        found[name] = {"peak_gflops": peak, "ops": [asdict(timing) for timing in timings]}
        if not as_json:
            click.echo(
                f"{name}: {model.session_for(name).reason}; matrix products {peak:.0f} GFLOP/s"
            )
            for line in _ops_table(timings, peak):
                click.echo(line)
    if as_json:
        click.echo(json.dumps(found, indent=2))


def _ops_table(timings: list[OpTiming], peak: float) -> list[str]:
    rows = [("op", "count", "M madds", "MB", "ms", "GFLOP/s", "of peak", "inputs")]
    for t in timings:
        rate = f"{t.gflops:.0f}", f"{100 * t.gflops / peak:.0f} %"
        size = f"{t.multiply_adds / 1e6:.1f}", f"{t.bytes / 1e6:.1f}", f"{1e3 * t.seconds:.2f}"
        rows.append((t.op, str(t.count), *size, *rate, t.inputs))
    return _aligned(rows, left=(0, 7))


def _names(graphs: str | None, model: Sam2Model) -> list[str]:
    known = list(model.graphs)
    names = known if graphs == "all" else graphs.split(",") if graphs else list(model.frame_graphs)
    for name in names:
        if name not in known:
            raise GraphError(f"there is no graph `{name}`", expected=", ".join(known))
    return names


def _table(timings: list[Timing]) -> list[str]:
    rows = [("graph", "profile", "compile", "run")]
    for timing in timings:
        compiled, run = f"{timing.compile_seconds:.2f} s", f"{1e3 * timing.run_seconds:.1f} ms"
        rows.append((timing.graph, timing.profile, compiled, run))
    return _aligned(rows, left=(0, 1))


def _aligned(rows: Sequence[Sequence[str]], left: Sequence[int]) -> list[str]:
    """Rows as lines; the columns in `left` are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if number in left else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
