"""`samgraph convert`: masks from one format to another."""

import json

import click

from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.option_groups import SectionedCommand, section, write_options
from samgraph.errors import printable
from samgraph.formats.table import FORMATS, WriteOptions
from samgraph.jobs.convert import ConvertJob, convert_all, run_convert

_NAMES = [entry.name for entry in FORMATS.values() if entry.encoder is not None]
_EXAMPLES = """
\b
Examples:
  samgraph convert out/frames.jsonl --format coco -o annotations.json
  samgraph convert out/ --format overlay --images clip.mp4 -o clip-masks.mp4
  samgraph convert annotations.json --format yolo -o labels/
"""


@click.command(cls=SectionedCommand, epilog=_EXAMPLES)
@click.argument("source")
@section(
    "Output",
    click.option(
        "-o", "--output", "out", required=True, metavar="OUT",
        help="A folder, or a file where the format has one for all images.",
    ),
    click.option(
        "--format", "names", multiple=True, type=click.Choice(_NAMES), metavar="NAME",
        help=f"What to write, may be repeated: {', '.join(_NAMES)}. By default, what the suffix of "
        "OUT implies. Several formats have a folder each in OUT.",
    ),
    click.option(
        "--images", metavar="VIDEO|FOLDER",
        help="Where the images are, for formats that show them.",
    ),
    write_options("label", "tolerance", "crop"),
    click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON."),
    click.option("--quiet", is_flag=True, help="Print only what is wrong."),
)  # fmt: skip
def command(
    source: str,
    out: str,
    names: tuple[str, ...],
    images: str | None,
    write: WriteOptions,
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Write the masks of SOURCE in another format; needs no model.

    SOURCE is frames.jsonl of a tracking run or the folder of one, COCO, Label Studio or labelme
    JSON, CVAT XML, MOTS text, or a folder of DAVIS masks.
    """
    job = ConvertJob(source, out, names[0] if names else None, images, write)
    written = convert_all(job, names) if len(set(names)) > 1 else run_convert(job)
    if as_json:
        click.echo(json.dumps({"written": [str(file) for file in written]}, indent=2))
    elif not quiet:
        more = f" and {len(written) - 1} more" if len(written) > 1 else ""
        click.echo(printable(f"wrote {written[0]}{more}" if written else "there was nothing"))
    return ExitCode.DONE
