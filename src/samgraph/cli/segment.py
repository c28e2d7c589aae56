"""`samgraph segment`: masks of objects in images from clicks, boxes or masks."""

from dataclasses import dataclass
from typing import Any

import click

from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.image_output import (
    ImageOutputOptions,
    open_output,
    output_options,
    run_command,
)
from samgraph.cli.option_groups import SectionedCommand, click_options, option_group, section
from samgraph.cli.options import (
    BOX,
    POINT,
    FilePath,
    ModelChoice,
    find_files,
    model_options,
    read_source,
)
from samgraph.errors import PromptError
from samgraph.jobs.prompt_files import PromptTable, predict_rows, read_prompt_file
from samgraph.predict.image.mask_prompts import read_mask_file
from samgraph.predict.image.result import CleanOptions, Result

AREA = click.IntRange(min=0)
_EXAMPLES = """
\b
Examples:
  samgraph segment photo.jpg --point 500,375 -o mask.png
  samgraph segment photo.jpg --box 75,275,1725,850 --format cutout -o cut.png
  samgraph segment photo.jpg --box 75,275,1725,850 --label car --box 9,9,80,90 --label dog -o a.json
  samgraph segment photos/ --prompts boxes.csv -o out/ --format coco
  samgraph segment *.jpg --point 500,375 --negative 20,30 -o out/ --format coco
  cat photo.jpg | samgraph segment - --point 500,375 -o - > mask.png
"""
Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ImagePrompt:
    """The prompt on the command line, the same for every image; `mask` is a file.

    `file` has prompts for each image instead (`samgraph.jobs.prompt_files`).
    """

    points: tuple[Numbers, ...] = ()
    negatives: tuple[Numbers, ...] = ()
    boxes: tuple[Numbers, ...] = ()
    mask: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        is_empty = not (self.points or self.negatives or self.boxes or self.mask is not None)
        if self.file is not None and not is_empty:
            raise PromptError("prompts are in a file or on the command line", got="both")
        if is_empty and self.file is None:
            raise PromptError(
                "there is no prompt",
                hint="say where the object is: --point X,Y, --box X0,Y0,X1,Y1 or --prompts FILE",
            )
        one_object = self.points or self.negatives or self.mask is not None
        if len(self.boxes) > 1 and one_object:
            raise PromptError(
                "points and masks describe one object, and several boxes are several objects",
                got=f"{len(self.boxes)} boxes",
                hint="run the command once for each object",
            )

    @property
    def is_ambiguous(self) -> bool:
        """Whether it is a single click, for which the best of three masks is taken."""
        clicks = len(self.points) + len(self.negatives)
        return clicks == 1 and not self.boxes and self.mask is None

    def labels_of(self, labels: tuple[str, ...]) -> str | tuple[str, ...] | None:
        """The label of the object, or of each: one for all, or one for each box.

        Raises:
            PromptError: There are some labels, but not one for each.
        """
        if len(labels) < 2:
            return labels[0] if labels else None
        if len(labels) != len(self.boxes):
            raise PromptError(
                "there is not one --label for each object",
                got=f"{len(labels)} labels, {max(1, len(self.boxes))} objects",
                hint="one --label names all objects",
            )
        return labels

    def arguments(self, size_hw: tuple[int, int]) -> dict[str, Any]:
        """The keyword arguments of `EncodedImage.predict`."""
        given: dict[str, Any] = {}
        if self.points or self.negatives:
            given["points"] = [*self.points, *self.negatives]
            given["labels"] = [1] * len(self.points) + [0] * len(self.negatives)
        if self.boxes:
            given |= {"boxes": self.boxes} if len(self.boxes) > 1 else {"box": self.boxes[0]}
        if self.mask is not None:
            given["mask"] = read_mask_file(self.mask, size_hw)
        return given


prompt_options = option_group(
    "prompt",
    ImagePrompt,
    *click_options(POINT),
    click.option("--box", "boxes", multiple=True, type=BOX, help="A box around an object."),
    click.option("--mask", type=FilePath(dir_okay=False), help="A mask prompt, as an image."),
    click.option(
        "--prompts",
        "file",
        type=FilePath(),
        metavar="FILE",
        help="Prompts for each image: CSV (path, x0,y0,x1,y1 or points, label), COCO with boxes, "
        "or a folder of YOLO boxes.",
    ),
)
clean_options = option_group(
    "clean",
    CleanOptions,
    click.option(
        "--fill-holes", type=AREA, default=0, metavar="AREA",
        help="Fill holes of at most N pixels.",
    ),
    click.option(
        "--drop-specks", type=AREA, default=0, metavar="AREA",
        help="Remove islands of at most N pixels.",
    ),
    click.option(
        "--smooth", type=AREA, default=0, metavar="RADIUS",
        help="Smooth edges by a majority vote within N pixels.",
    ),
)  # fmt: skip


@click.command(cls=SectionedCommand, epilog=_EXAMPLES)
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@section("Prompts", prompt_options)
@section(
    "Masks",
    click.option(
        "--best/--all", "is_best", default=True, help="The best mask (the default), or all three."
    ),
    clean_options,
)
@section("Output", output_options)
@section("Model", model_options)
def command(
    images: tuple[str, ...],
    prompt: ImagePrompt,
    is_best: bool,
    clean: CleanOptions,
    choice: ModelChoice,
    output: ImageOutputOptions,
) -> ExitCode:
    """Segment an object in each IMAGE; coordinates are pixels of the upright image.

    Several --point and --negative describe one object; several --box are several objects, each
    with its own --label where there are as many. IMAGE may be a folder, a pattern, or - for
    standard input. The default format is png.
    """
    sources = find_files(images)
    table = None if prompt.file is None else read_prompt_file(prompt.file)
    if table is not None:
        sources = _with_prompts(table, sources, quiet=output.quiet or output.as_json)
    target = open_output(output, sources, "png", all_masks=not is_best)
    labels = prompt.labels_of(output.labels) if table is None else None
    model = choice.load()

    def work(source: str) -> Result:
        image = model.image(read_source(source))
        if table is not None:
            result = predict_rows(image, table.of(source), all_masks=not is_best)
        else:
            multimask = prompt.is_ambiguous or not is_best
            result = image.predict(**prompt.arguments(image.size_hw), multimask=multimask)
            result = result.with_labels(labels)
        return (result.best if is_best else result).clean(clean)

    return run_command(sources, work, target, output)


def _with_prompts(table: PromptTable, sources: list[str], *, quiet: bool) -> list[str]:
    """The images that have a prompt in a file; the number of others is printed.

    Raises:
        PromptError: A row is of an image that was not given.
    """
    unused = table.unused(sources)
    if unused:
        row = unused[0]
        raise PromptError(
            f"{row.where} is of an image that was not given",
            got=f"`{row.path}`" + (f" and {len(unused) - 1} more" if len(unused) > 1 else ""),
            expected=", ".join(f"`{source}`" for source in sources[:3]),
        )
    found = [source for source in sources if table.of(source)]
    if len(found) < len(sources) and not quiet:
        text = f"{len(sources) - len(found)} of {len(sources)} images have no prompt"
        click.echo(text, err=True)
    return found
