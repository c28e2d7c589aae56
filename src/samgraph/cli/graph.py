"""`samgraph graph`: show any part of the model, before or after passes, or its cost."""

import click
from rich.console import Console
from rich.table import Table

from samgraph.cli.options import FilePath
from samgraph.errors import OptionError
from samgraph.graph import Graph, print_graph, to_dot, to_svg
from samgraph.media.files import write_atomically
from samgraph.models import families
from samgraph.models.loading import find_config
from samgraph.models.nano.config import NANO
from samgraph.models.sam2.statistics import TYPICAL, measure
from samgraph.passes import fold_params
from samgraph.passes.cut import cut
from samgraph.passes.pipeline import FOLD, Precision, summary_of
from samgraph.runtime import CompileOptions, Session, dispatch


@click.command()
@click.argument("name", required=False)
@click.option("--model", default="sam2.1-tiny", show_default=True, help="A model by name.")
@click.option("--before", "stage", flag_value="before", help="As traced (the default).")
@click.option("--after", "stage", flag_value="after", help="As the engine compiles it.")
@click.option(
    "--passes",
    "stage",
    flag_value="passes",
    help="After each pass in turn; with no NAME, the list of passes.",
)
@click.option(
    "--dispatch", "stage", flag_value="dispatch", help="Which op runs how, in which precision."
)
@click.option("--engine", metavar="NAME", help="Whose passes to run.")
@click.option("--device", default="cpu", show_default=True, help="For which device.")
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), help="fp32 by default.")
@click.option("--profile", default="fused", show_default=True, metavar="NAME|PATH")
@click.option("--image-size", type=int, help="Input size, if not the model's own.")
@click.option("--svg", type=FilePath(dir_okay=False), help="Draw the graph to an SVG file.")
@click.option("--dot", type=FilePath(dir_okay=False), help="Write it for Graphviz.")
@click.option("--cost", is_flag=True, help="Ops, parameters, multiply-adds and bytes.")
def command(
    name: str | None,
    model: str,
    stage: str | None,
    engine: str | None,
    device: str,
    precision: Precision | None,
    profile: str,
    image_size: int | None,
    svg: str | None,
    dot: str | None,
    cost: bool,
) -> None:
    """Show graph NAME of the model; with no NAME, the cost of all parts of all sizes."""
    if name is None and stage != "passes":
        _print_costs([NANO.name, *(name for family in families() for name in family.configs)])
        return
    options = CompileOptions(engine=engine, precision=precision, profile=profile)
    session = Session(device, options)
    if name is None:
        _print_passes(session)
        return
    family, config = find_config(model)
    if image_size is not None:
        config = config.at_size(image_size)
    graph = family.trace(config, [name])[name]
    is_split = session.options.chosen_profile.stages == "split"
    if is_split and (svg or dot):
        raise OptionError("a split graph is not drawn in one file", hint="leave out `--profile`")
    for piece in cut(graph) if is_split else (graph,):
        if stage == "passes":
            session.optimise(piece, lambda step, after: click.echo(f"# {step}\n{after}\n"))
            continue
        if stage == "dispatch":
            _print_dispatch(session, piece)
            continue
        shown = session.optimise(piece) if stage == "after" else piece
        if cost:
            _print_ops(shown)
        elif not (svg or dot):
            click.echo(print_graph(shown))
        for path, draw in ((svg, to_svg), (dot, to_dot)):
            if path and not cost:
                write_atomically(path, draw(shown).encode())
                click.echo(f"wrote {path}")


def _print_costs(names: list[str]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = ("model", "graph", "nodes", "parameters", "multiply-adds", "weights", "values")
    for title in titles:
        table.add_column(title, justify="left" if title in ("model", "graph") else "right")
    for model in names:
        family, config = find_config(model)
        for number, (name, graph) in enumerate(family.trace(config).items()):
            cost = measure(graph)
            table.add_row(
                "" if number else model,
                name,
                str(cost.nodes),
                f"{cost.parameters / 1e6:.2f} M",
                f"{cost.multiply_adds / 1e9:.1f} G",
                f"{cost.weight_bytes / 1e6:.0f} MB",
                f"{cost.value_bytes / 1e6:.0f} MB",
            )
    Console(highlight=False, width=None if Console().is_terminal else 110).print(table)
    click.echo(_sizes_note())


def _print_passes(session: Session) -> None:
    """The pipeline of the session's engine: a line for each pass, those that do not run marked."""
    running = session.pass_names
    click.echo(f"# {session.reason}")
    width = max((len(step.name) for step in session.engine.passes), default=0)
    for step in session.engine.passes:
        notes = [f"{step.precisions[0]} only"] if len(step.precisions) == 1 else []
        notes += ["required"] if step.required else []
        notes += [] if step.name in running else ["off"]
        note = f" [{', '.join(notes)}]" if notes else ""
        click.echo(f"{step.name:{width}}  {step.summary}{note}")
    if session.engine.folds_params:
        note = "" if FOLD in running else " [off]"
        click.echo(f"{FOLD:{width}}  {summary_of(fold_params)}{note}")


def _print_dispatch(session: Session, graph: Graph) -> None:
    rows = dispatch(session, graph)
    click.echo(f"# {graph.name}: {session.reason}")
    width = max(len(row.op) for row in rows)
    click.echo(f"{'op':{width}}  traced  compiled  precision         how")
    for row in rows:
        precision = ", ".join(f"{count} {name}" for name, count in row.precisions.items())
        click.echo(f"{row.op:{width}}  {row.traced:6}  {row.compiled:8}  {precision:16}  {row.how}")


def _print_ops(graph: Graph) -> None:
    cost = measure(graph)
    for op, count in cost.ops.items():
        click.echo(f"{count:5}  {op}")
    click.echo(
        f"{cost.nodes} nodes, {cost.parameters / 1e6:.2f} M parameters, "
        f"{cost.multiply_adds / 1e9:.2f} G multiply-adds, {cost.weight_bytes / 1e6:.1f} MB of "
        f"weights, {cost.value_bytes / 1e6:.1f} MB of values"
    )
    click.echo(_sizes_note())


def _sizes_note() -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in TYPICAL.items())
    return f"for {sizes}: one image, one prompt or object, a full memory"
