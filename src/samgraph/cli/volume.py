"""`samgraph volume`: objects in a CT or MR scan, from a box on one slice."""

import json
from pathlib import Path
from typing import Any

import click

from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.option_groups import SectionedCommand, option_group, policy_option, section
from samgraph.cli.options import FilePath, ModelChoice, model_options
from samgraph.cli.track_prompts import VideoPrompts, slice_prompt_options
from samgraph.errors import PromptError, printable
from samgraph.jobs.volume import ScanOptions, SliceRange, VolumeJob, run_volume
from samgraph.media.volume.scan import PLANES
from samgraph.media.volume.window import AUTO, WINDOWS
from samgraph.predict.volume.result import SUFFIXES, VolumeResult

SLICE = click.IntRange(min=0)
_EXAMPLES = """
\b
Examples:
  samgraph volume scan.nii.gz --slice 42 --box 100,120,180,200 -o mask.nii.gz
  samgraph volume series/ --slice 42 --box 100,120,180,200 --window lung -o mask.nii.gz
  samgraph volume scan.nii.gz --axis coronal --point 90,60@31:1 --point 40,60@31:2 -o mask.nii.gz
  samgraph volume scan.npy --window 40,400 --slice 42 --box 100,120,180,200 -o mask.npy
"""


class _Axis(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """The number of an axis, or a plane."""

    name = "axis"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """The axis."""
        known: dict[Any, int | str] = {"0": 0, "1": 1, "2": 2, **{name: name for name in PLANES}}
        if value not in known and value not in (0, 1, 2):
            self.fail(f"`{value}` is not 0, 1, 2, {', '.join(PLANES[::-1])}", param, ctx)
        found: int | str = known.get(value, value)
        return found


class _Window(click.ParamType):  # type: ignore[type-arg]  # as above
    """LEVEL,WIDTH or a name."""

    name = "window"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | tuple[float, ...]:
        """The name, or the two numbers."""
        if isinstance(value, tuple):
            return value
        text = str(value)
        if text == AUTO or text in WINDOWS:
            return text
        try:
            found = tuple(float(part) for part in text.split(","))
        except ValueError:
            found = ()
        if len(found) != 2:
            names = ", ".join((AUTO, *WINDOWS))
            self.fail(f"`{text}` is not LEVEL,WIDTH or one of {names}", param, ctx)
        return found


scan_options = option_group(
    "scan",
    ScanOptions,
    click.option(
        "--axis", type=_Axis(), metavar="AXIS",
        help="What slices follow: axial, coronal, sagittal, or an axis of the array, 0 (the "
        "default) to 2.",
    ),
    click.option(
        "--window", type=_Window(), metavar="LEVEL,WIDTH",
        help=f"What becomes black and white; or {', '.join(WINDOWS)}, {AUTO}. By default what the "
        "file suggests.",
    ),
    click.option(
        "--series", metavar="UID|NUMBER", help="Of a folder with several DICOM series."
    ),
    click.option(
        "--max-voxels", type=click.IntRange(min=1), metavar="N",
        help="Refuse a volume that declares more.",
    ),
)  # fmt: skip
slice_options = option_group(
    "slices",
    SliceRange,
    click.option("--start", type=SLICE, metavar="N", help="The first slice to look at."),
    click.option("--end", type=SLICE, metavar="N", help="The last slice to look at."),
    click.option(
        "--largest/--all-components", "largest", default=True,
        help="Keep the largest connected component of an object (the default), or all.",
    ),
)  # fmt: skip


@click.command(cls=SectionedCommand, epilog=_EXAMPLES)
@click.argument("scan_path", metavar="SCAN")
@section(
    "Prompts",
    click.option(
        "--slice", "key", type=SLICE, metavar="N", help="The slice of prompts without @SLICE."
    ),
    slice_prompt_options,
)
@section("Scan", scan_options)
@section("Slices", slice_options)
@section(
    "Output",
    click.option(
        "-o", "--output", "out", required=True, type=FilePath(path_type=Path), metavar="FILE",
        help=f"The file for the labels: {', '.join(SUFFIXES)}.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON."),
    click.option("--progress/--quiet", "progress", default=True, help="Print progress, or not."),
)  # fmt: skip
@section("Tracking", policy_option)
@section("Model", model_options)
def command(
    scan_path: str,
    key: int | None,
    prompts: VideoPrompts,
    scan: ScanOptions,
    slices: SliceRange,
    out: Path,
    as_json: bool,
    progress: bool,
    policy: str,
    choice: ModelChoice,
) -> ExitCode:
    """Segment objects in SCAN, a NIfTI or .npy file or the folder of a DICOM series.

    A box on one slice is followed through the slices on both sides. Prompts are X,Y@SLICE:OBJECT,
    by default of --slice and object 1; slices count from 0, and pixels as in the array: in a NIfTI
    file (i, j) of slice k. OUT has the number of the object at each voxel, on the scan's own grid.
    """
    given = prompts.by_object_and_frame(-1 if key is None else key)
    if any(index < 0 for _, index in given):
        raise PromptError(
            "it is not said which slice a prompt is on", hint="--slice N, or X0,Y0,X1,Y1@N"
        )
    job = VolumeJob(scan_path, given, out, scan, slices, (("policy", policy),))
    result = run_volume(job, choice.load, None if progress and not as_json else False)
    if as_json:
        click.echo(json.dumps(_summary(result, out), indent=2))
    elif progress:
        for line in _lines(result, out):
            click.echo(printable(line))
    return ExitCode.DONE


def _summary(result: VolumeResult, out: Path) -> dict[str, Any]:
    volumes = result.volumes
    return {
        "output": str(out),
        "objects": [
            {
                "object": name,
                "label": result.numbers[name],
                "voxels": result.voxels[name],
                "cubic_millimetres": None if volumes is None else round(volumes[name], 3),
                "slices": result.slices(name),
            }
            for name in result.objects
        ],
    }


def _lines(result: VolumeResult, out: Path) -> list[str]:
    lines = [f"wrote {out}"]
    for name in result.objects:
        found, volumes = result.slices(name), result.volumes
        size = "" if volumes is None else f" ({volumes[name] / 1000:.2f} ml)"
        where = "" if found is None else f", slices {found[0]} to {found[1]}"
        lines.append(f"object {name}: {result.voxels[name]:,} voxels{size}{where}")
    return lines
