"""`samgraph everything`: automatic masks of images."""

import click

from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.image_output import ImageOutputOptions, open_output, output_options, run_command
from samgraph.cli.option_groups import SectionedCommand, option_group, section
from samgraph.cli.options import ModelChoice, find_files, model_options, read_source
from samgraph.errors import OptionError
from samgraph.predict.everything.generate import Everything
from samgraph.predict.everything.options import EverythingOptions

_EXAMPLES = """
\b
Examples:
  samgraph everything photo.jpg -o overlay.jpg
  samgraph everything photos/*.jpg -o masks/ --format coco
  samgraph everything photo.jpg --points-per-side 16 --crop-layers 1 --json
"""
_DEFAULT = EverythingOptions()

everything_options = option_group(
    "options",
    EverythingOptions,
    click.option(
        "--points-per-side", type=int, default=_DEFAULT.points_per_side, show_default=True,
        help="Points along each side of the grid.",
    ),
    click.option(
        "--points-per-batch", type=int, default=_DEFAULT.points_per_batch, show_default=True,
        help="Points per update of the progress.",
    ),
    click.option(
        "--iou", "pred_iou_thresh", type=float, show_default="the model's own",
        help="Drop masks with a lower predicted IoU.",
    ),
    click.option(
        "--stability", "stability_score_thresh", type=float, show_default="the model's own",
        help="Drop masks with a lower stability score.",
    ),
    click.option(
        "--stability-offset", "stability_score_offset", type=float, show_default=True,
        default=_DEFAULT.stability_score_offset,
        help="How far the threshold is moved to compute the stability score.",
    ),
    click.option(
        "--threshold", "mask_threshold", type=float, default=_DEFAULT.mask_threshold,
        show_default=True, help="The logit above which a pixel belongs to a mask.",
    ),
    click.option(
        "--nms", "box_nms_thresh", type=float, default=_DEFAULT.box_nms_thresh,
        show_default=True, help="Of masks whose boxes overlap more (IoU), keep the best.",
    ),
    click.option(
        "--crop-layers", "crop_n_layers", type=int, default=_DEFAULT.crop_n_layers,
        show_default=True, help="Also run on crops: 2 x 2, then 4 x 4, ...",
    ),
    click.option(
        "--crop-nms", "crop_nms_thresh", type=float, default=_DEFAULT.crop_nms_thresh,
        show_default=True, help="As --nms, between crops.",
    ),
    click.option(
        "--crop-overlap", "crop_overlap_ratio", type=float, show_default="0.341",
        default=_DEFAULT.crop_overlap_ratio,
        help="Overlap of crops, as a fraction of the image's short side.",
    ),
    click.option(
        "--crop-downscale", "crop_n_points_downscale_factor", type=int, show_default=True,
        default=_DEFAULT.crop_n_points_downscale_factor,
        help="How much coarser the grid gets per layer of crops.",
    ),
    click.option(
        "--min-area", "min_mask_region_area", type=int, default=_DEFAULT.min_mask_region_area,
        show_default=True, metavar="PIXELS", help="Remove smaller holes and islands.",
    ),
    click.option(
        "--refine", "use_m2m", is_flag=True, help="Refine each mask once with itself as a prompt."
    ),
    click.option(
        "--multimask/--single", default=True, help="Three masks per point (the default), or one."
    ),
)  # fmt: skip


@click.command(cls=SectionedCommand, epilog=_EXAMPLES)
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@section("Masks", everything_options)
@section(
    "Output",
    output_options,
    click.option("--separate", is_flag=True, help="A file per mask, as png or cutout."),
)
@section("Model", model_options)
def command(
    images: tuple[str, ...],
    options: EverythingOptions,
    separate: bool,
    choice: ModelChoice,
    output: ImageOutputOptions,
) -> ExitCode:
    """Segment everything in each IMAGE: automatic masks from a grid of points.

    IMAGE may be a folder, a pattern, or - for standard input. The default format is coco.
    """
    if len(output.labels) > 1:
        raise OptionError("automatic masks have one --label", got=", ".join(output.labels))
    sources = find_files(images)
    target = open_output(output, sources, "coco", all_masks=separate)
    model = choice.load()
    progress = False if output.quiet else None

    def work(source: str) -> Everything:
        image = read_source(source)
        result: Everything = model.everything(image, progress=progress, options=options)
        return result

    return run_command(sources, work, target, output)
