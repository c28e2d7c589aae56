"""`samgraph segment`: cut objects out of images with clicks, boxes or masks."""

from typing import Any

import click

from samgraph.cli.options import BOX, POINT, ModelChoice, find_files, model_options
from samgraph.cli.outputs import OutputOptions, Outputs, Report, output_options, run_all
from samgraph.errors import PromptError
from samgraph.predict.image.result import Result
from samgraph.predict.mask_prompts import read_mask_file

AREA = click.IntRange(min=0)
_EXAMPLES = """
\b
Examples:
  samgraph segment photo.jpg --point 500,375 -o mask.png
  samgraph segment photo.jpg --box 75,275,1725,850 --format cutout -o cut.png
  samgraph segment *.jpg --point 500,375 --negative 20,30 -o out/ --format coco
  cat photo.jpg | samgraph segment - --point 500,375 -o - > mask.png
"""


@click.command(epilog=_EXAMPLES)
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@click.option("--point", "points", multiple=True, type=POINT, help="A click on the object.")
@click.option("--negative", "negatives", multiple=True, type=POINT, help="A click beside it.")
@click.option("--box", "boxes", multiple=True, type=BOX, help="A box around it; one an object.")
@click.option("--mask", type=click.Path(dir_okay=False), help="A mask to start from, as an image.")
@click.option(
    "--best/--all", "is_best", default=True, help="The best mask (the default), or all three."
)
@click.option(
    "--fill-holes", type=AREA, default=0, metavar="AREA", help="Fill holes of so many pixels."
)
@click.option(
    "--drop-specks", type=AREA, default=0, metavar="AREA", help="Drop pieces of so many pixels."
)
@click.option(
    "--smooth", type=AREA, default=0, metavar="RADIUS", help="Smooth edges over so many pixels."
)
@output_options
@model_options
def command(
    images: tuple[str, ...],
    points: tuple[tuple[float, ...], ...],
    negatives: tuple[tuple[float, ...], ...],
    boxes: tuple[tuple[float, ...], ...],
    mask: str | None,
    is_best: bool,
    fill_holes: int,
    drop_specks: int,
    smooth: int,
    choice: ModelChoice,
    output: OutputOptions,
) -> int:
    """Cut an object out of each IMAGE; coordinates are pixels of the upright image.

    Several --point and --negative describe one object; several --box are several objects. IMAGE
    may be a pattern, or - for standard input.
    """
    prompt = _prompt(points, negatives, boxes, mask)
    is_ambiguous = len(points) + len(negatives) == 1 and not boxes and mask is None
    sources = find_files(images)
    outputs = Outputs(output, sources, "png", all_masks=not is_best)
    model = choice.load()

    def work(source: Any, name: str) -> Result:
        image = model.image(source)
        given = dict(prompt)
        if mask is not None:
            given["mask"] = read_mask_file(mask, image.size_hw)
        result = image.predict(**given, multimask=is_ambiguous or not is_best)
        return _clean(result if not is_best else result.best, fill_holes, drop_specks, smooth)

    return run_all(sources, work, outputs, Report(output))


def _prompt(
    points: tuple[tuple[float, ...], ...],
    negatives: tuple[tuple[float, ...], ...],
    boxes: tuple[tuple[float, ...], ...],
    mask: str | None,
) -> dict[str, Any]:
    """The prompt that options stand for, as `EncodedImage.predict` takes it."""
    if not points and not negatives and not boxes and mask is None:
        raise PromptError(
            "there is no prompt", hint="say where the object is: --point X,Y or --box X0,Y0,X1,Y1"
        )
    given: dict[str, Any] = {}
    if points or negatives:
        given["points"] = [*points, *negatives]
        given["labels"] = [1] * len(points) + [0] * len(negatives)
    if len(boxes) == 1:
        given["box"] = boxes[0]
    elif boxes:
        given["boxes"] = boxes
    if len(boxes) > 1 and (given.keys() & {"points"} or mask is not None):
        raise PromptError(
            "points and masks describe one object, and several boxes are several objects",
            got=f"{len(boxes)} boxes",
            hint="run the command once for each object",
        )
    return given


def _clean(result: Result, holes: int, specks: int, radius: int) -> Result:
    if holes:
        result = result.fill_holes(holes)
    if specks:
        result = result.drop_specks(specks)
    return result.smooth(radius) if radius else result
