"""`samgraph everything`: masks of everything in images."""

from typing import Any

import click

from samgraph.cli.options import ModelChoice, find_files, model_options
from samgraph.cli.outputs import OutputOptions, Outputs, Report, output_options, run_all
from samgraph.predict.everything.generate import Everything
from samgraph.predict.everything.settings import EverythingSettings, read_settings

_EXAMPLES = """
\b
Examples:
  samgraph everything photo.jpg -o overlay.jpg
  samgraph everything photos/*.jpg -o masks/ --format coco
  samgraph everything photo.jpg --points-per-side 16 --crop-layers 1 --json
"""
_DEFAULT = EverythingSettings()


@click.command(epilog=_EXAMPLES)
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@click.option(
    "--points-per-side", type=int, default=_DEFAULT.points_per_side, show_default=True,
    help="Points along each side of the grid.",
)  # fmt: skip
@click.option(
    "--points-per-batch", type=int, default=_DEFAULT.points_per_batch, show_default=True,
    help="Points between two steps of the progress bar.",
)  # fmt: skip
@click.option(
    "--iou", "pred_iou_thresh", type=float, default=_DEFAULT.pred_iou_thresh, show_default=True,
    help="Drop masks that the model thinks worse than this.",
)  # fmt: skip
@click.option(
    "--stability", "stability_score_thresh", type=float, show_default=True,
    default=_DEFAULT.stability_score_thresh, help="Drop masks less stable than this.",
)  # fmt: skip
@click.option(
    "--stability-offset", "stability_score_offset", type=float, show_default=True,
    default=_DEFAULT.stability_score_offset, help="How far the threshold moves to tell.",
)  # fmt: skip
@click.option(
    "--threshold", "mask_threshold", type=float, default=_DEFAULT.mask_threshold,
    show_default=True, help="The logit above which a pixel belongs to a mask.",
)  # fmt: skip
@click.option(
    "--nms", "box_nms_thresh", type=float, default=_DEFAULT.box_nms_thresh, show_default=True,
    help="Of masks whose boxes overlap more, keep the best.",
)  # fmt: skip
@click.option(
    "--crop-layers", "crop_n_layers", type=int, default=_DEFAULT.crop_n_layers,
    show_default=True, help="Look again at crops: 2 x 2, then 4 x 4, ...",
)  # fmt: skip
@click.option(
    "--crop-nms", "crop_nms_thresh", type=float, default=_DEFAULT.crop_nms_thresh,
    show_default=True, help="As --nms, between crops.",
)  # fmt: skip
@click.option(
    "--crop-overlap", "crop_overlap_ratio", type=float, show_default="0.341",
    default=_DEFAULT.crop_overlap_ratio, help="How far crops overlap.",
)  # fmt: skip
@click.option(
    "--crop-downscale", "crop_n_points_downscale_factor", type=int, show_default=True,
    default=_DEFAULT.crop_n_points_downscale_factor, help="Coarser grids in each layer of crops.",
)  # fmt: skip
@click.option(
    "--min-area", "min_mask_region_area", type=int, default=_DEFAULT.min_mask_region_area,
    show_default=True, help="Clean away smaller holes and loose pieces.",
)  # fmt: skip
@click.option("--refine", "use_m2m", is_flag=True, help="Give each mask back to the model once.")
@click.option("--single", is_flag=True, help="One mask a point instead of three.")
@click.option("--separate", is_flag=True, help="A file for each mask, as png or cutout.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
@output_options
@model_options
def command(
    images: tuple[str, ...],
    single: bool,
    separate: bool,
    quiet: bool,
    choice: ModelChoice,
    output: OutputOptions,
    **given: Any,
) -> int:
    """Find masks of everything in each IMAGE.

    IMAGE may be a pattern, or - for standard input. The default grid is 32 x 32 points.
    """
    settings = read_settings({**given, "multimask": not single})
    sources = find_files(images)
    outputs = Outputs(output, sources, "coco", all_masks=separate)
    model = choice.load()

    def work(source: Any, name: str) -> Everything:
        progress = False if quiet else None
        result: Everything = model.everything(source, progress=progress, settings=settings)
        return result

    return run_all(sources, work, outputs, Report(output))
