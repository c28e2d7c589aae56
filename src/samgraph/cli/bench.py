"""`samgraph bench`: how long the graphs of a model take to compile and to run, here."""

import json
from dataclasses import asdict, replace

import click

from samgraph.cli.options import ModelChoice, model_options
from samgraph.errors import GraphError
from samgraph.evaluate.speed import Timing, time_graphs
from samgraph.models.sam2.model import Sam2Model
from samgraph.models.sam2.statistics import TYPICAL

# What a tracked frame and a prompted image run; the others are asked for by name.
_USUAL = ("image_encoder", "decode", "memory_encoder", "memory_attention")


@click.command()
@click.option("--graphs", help="Which graphs, with commas between; `all` for all.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@model_options
def command(graphs: str | None, runs: int, as_json: bool, choice: ModelChoice) -> None:
    """Time the graphs of a model: compiling anew, and the median of --runs runs.

    --profile takes several names with commas between, and is `fused,split` if not said: graphs that
    a profile compiles otherwise have a row each. The runs of all graphs are interleaved.
    """
    models: dict[str, Sam2Model] = {}
    for profile in (choice.profile or "fused,split").split(","):
        model = replace(choice, profile=profile).load(cache=False)
        models[model.core.session.options.chosen_profile.name] = model.core
    first = next(iter(models.values()))
    timings = time_graphs(models, _names(graphs, first), runs=runs)
    reason = first.session.reason.partition("; profile")[0]
    if as_json:
        rows = [asdict(timing) for timing in timings]
        found = {"model": first.config.name, "reason": reason, "sizes": TYPICAL, "graphs": rows}
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{first.config.name} at {first.config.image_size} px: {reason}")
    for line in _table(timings):
        click.echo(line)
    sizes = ", ".join(f"{name}={size}" for name, size in TYPICAL.items())
    click.echo(f"median of {runs} interleaved runs, {sizes}; compiled without the cache")


def _names(graphs: str | None, model: Sam2Model) -> list[str]:
    known = list(model.graphs)
    names = known if graphs == "all" else graphs.split(",") if graphs else list(_USUAL)
    for name in names:
        if name not in known:
            raise GraphError(f"there is no graph `{name}`", expected=", ".join(known))
    return names


def _table(timings: list[Timing]) -> list[str]:
    rows = [("graph", "profile", "compile", "run")]
    for timing in timings:
        compiled, run = f"{timing.compile_seconds:.2f} s", f"{1e3 * timing.run_seconds:.1f} ms"
        rows.append((timing.graph, timing.profile, compiled, run))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"{graph:{widths[0]}}  {profile:{widths[1]}}  {compiled:>{widths[2]}}  {run:>{widths[3]}}"
        for graph, profile, compiled, run in rows
    ]
