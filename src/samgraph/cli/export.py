"""`samgraph export`: the graphs of a model as files that other runtimes run."""

from pathlib import Path

import click

from samgraph.checkpoint.builtin import NANO
from samgraph.errors import OptionError
from samgraph.exporters import ExportOptions
from samgraph.untrusted.text import shown


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="[MODEL] DIR")
@click.option("--to", default="onnx", show_default=True, metavar="FORMAT", help="What to write.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "fp16-weights"]),
    default="fp32",
    show_default=True,
    help="fp16: weights, and what masks do not suffer from; fp16-weights: files of half the size, "
    "computed in float32. Inputs and outputs stay float32.",
)
@click.option("--opset", type=int, help="ONNX operators: 21 (the default) or 23.")
@click.option(
    "--fix",
    metavar="N=1,F=7",
    help="Lengths that are fixed; the others stay symbolic. B images, N prompts or objects, "
    "P points, F remembered frames, Q object pointers.",
)
@click.option(
    "--weights",
    type=click.Choice(["inside", "beside"]),
    default="inside",
    show_default=True,
    help="In each file, or in one file that all graphs share.",
)
@click.option("--graph", "only", multiple=True, metavar="NAME", help="Only this graph; repeatable.")
@click.option(
    "--runtime",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="For web: the folder of onnxruntime-web; by default fetched with npm.",
)
@click.option("--image-size", type=int, help="Input size, if not the model's own.")
def command(
    paths: tuple[str, ...],
    to: str,
    precision: str,
    opset: int | None,
    fix: str | None,
    weights: str,
    only: tuple[str, ...],
    runtime: Path | None,
    image_size: int | None,
) -> None:
    """Write the graphs of MODEL (by default the built-in one) and manifest.json to folder DIR.

    Examples:
      samgraph export --to onnx nano/
      samgraph export --to web site/
      samgraph export sam2.1-tiny --to onnx tiny/ --fix N=1 --weights beside
    """
    from samgraph.exporters import find_exporter
    from samgraph.models.exporting import export_model
    from samgraph.models.loading import load_model

    if len(paths) > 2:
        raise OptionError("too many arguments", got=len(paths), expected="[MODEL] DIR")
    source, folder = (NANO.name, *paths)[-2:]
    find_exporter(to)  # before a model is loaded, or downloaded
    options = ExportOptions(
        precision="fp16" if precision == "fp16" else "fp32",
        half_weights=precision != "fp32",
        opset=opset,
        fixed=read_lengths(fix or ""),
        weights=weights,  # type: ignore[arg-type]  # click has checked it
        runtime=runtime,
    )
    model = load_model(source, device="cpu", image_size=image_size)
    for path in export_model(model, to, folder, options, only=only):
        click.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")


def read_lengths(text: str) -> dict[str, int]:
    """Lengths by symbol: ``"N=1,F=7"`` is ``{"N": 1, "F": 7}``."""
    lengths: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, equals, number = (word.strip() for word in part.partition("="))
        if not equals or not number.isdecimal() or len(number) > 9 or name in lengths:
            raise OptionError(f"`{shown(part)}` is not a length", expected="such as N=1,F=7")
        lengths[name] = int(number)
    return lengths
