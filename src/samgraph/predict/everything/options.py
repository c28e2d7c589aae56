"""The options of automatic masks: the reference's, by its names and with its defaults."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from samgraph.errors import OptionError, brief
from samgraph.formats.sam import Mode
from samgraph.models.family import ModelConfig
from samgraph.predict.everything.grids import Grid, layer_grids
from samgraph.predict.options import check_names

_MODES = ("binary_mask", "uncompressed_rle", "coco_rle")
_MOST_POINTS = 1 << 20
_LARGEST = 1e30
# What the reference drops below, whatever the model.
LEAST_IOU: Final = 0.8
LEAST_STABILITY: Final = 0.95
_OF_MODEL = ("pred_iou_thresh", "stability_score_thresh")  # None: the model's own
_NUMBERS = (
    "pred_iou_thresh",
    "stability_score_thresh",
    "stability_score_offset",
    "mask_threshold",
    "box_nms_thresh",
    "crop_nms_thresh",
    "crop_overlap_ratio",
    "min_mask_region_area",
)


@dataclass(frozen=True, slots=True)
class EverythingOptions:
    """Which points are prompts, and which masks are kept.

    points_per_side           points along each side of the grid; or `point_grids` instead: a list
                              of [K, 2] in 0..1, for the image and for each layer of crops
    points_per_batch          points per progress report; does not change the result
    pred_iou_thresh           masks with a lower predicted IoU are dropped; None for the model's own
    stability_score_thresh    masks with a lower stability score are dropped; likewise
    stability_score_offset    how far the threshold is moved to compute the stability score
    mask_threshold            the logit above which a pixel belongs to a mask
    box_nms_thresh            IoU of boxes above which non-maximum suppression drops a mask
    crop_n_layers             also run on crops: 2 x 2 in the first layer, then 4 x 4, ...
    crop_nms_thresh           as `box_nms_thresh`, between crops; the smaller crop wins
    crop_overlap_ratio        overlap of crops in the first layer, as a fraction of the short side
    crop_n_points_downscale_factor    how much coarser the grid gets per layer
    min_mask_region_area      smaller holes and islands are removed, in pixels
    output_mode               the encoding of masks in `to_sam_dicts`
    use_m2m                   refine each mask once with itself as a mask prompt
    multimask                 three masks per point, or one
    """

    points_per_side: int | None = 32
    points_per_batch: int = 64
    pred_iou_thresh: float | None = None
    stability_score_thresh: float | None = None
    stability_score_offset: float = 1.0
    mask_threshold: float = 0.0
    box_nms_thresh: float = 0.7
    crop_n_layers: int = 0
    crop_nms_thresh: float = 0.7
    crop_overlap_ratio: float = 512 / 1500
    crop_n_points_downscale_factor: int = 1
    point_grids: Sequence[Grid] | None = None
    min_mask_region_area: int = 0
    output_mode: Mode = "binary_mask"
    use_m2m: bool = False
    multimask: bool = True

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise OptionError(problem)

    @property
    def least_iou(self) -> float:
        """The threshold of the predicted IoU; the reference's if none was given."""
        return LEAST_IOU if self.pred_iou_thresh is None else self.pred_iou_thresh

    @property
    def least_stability(self) -> float:
        """The threshold of the stability score; the reference's if none was given."""
        given = self.stability_score_thresh
        return LEAST_STABILITY if given is None else given

    def of_model(self, config: ModelConfig) -> "EverythingOptions":
        """The same, with the model's own thresholds where none were given."""
        iou, stability = self.pred_iou_thresh, self.stability_score_thresh
        return replace(
            self,
            pred_iou_thresh=config.everything_iou if iou is None else iou,
            stability_score_thresh=config.everything_stability if stability is None else stability,
        )

    @property
    def grids(self) -> list[Grid]:
        """The points, in 0..1, for the image and for each layer of crops."""
        if self.point_grids is None:
            side, layers = self.points_per_side or 0, self.crop_n_layers
            return layer_grids(side, layers, self.crop_n_points_downscale_factor)
        return [np.asarray(grid, np.float64) for grid in self.point_grids]


def own_thresholds(config: ModelConfig) -> dict[str, float]:
    """The thresholds of a model that has its own; none where they are the reference's."""
    own = config.everything_iou, config.everything_stability
    return {} if own == (LEAST_IOU, LEAST_STABILITY) else dict(zip(_OF_MODEL, own, strict=True))


def read_options(named: dict[str, Any]) -> EverythingOptions:
    """The options from keyword arguments.

    Raises:
        OptionError: An option does not exist, or its value is out of range.
    """
    check_names(named, [field.name for field in fields(EverythingOptions)], "`everything`")
    if named.get("point_grids") is not None:
        named = {"points_per_side": None, **named}
    return EverythingOptions(**named)


def _problems(options: EverythingOptions) -> list[str]:
    found = [*_wrong_numbers(options)]
    if (options.points_per_side is None) == (options.point_grids is None):
        found.append("give either `points_per_side` or `point_grids`, and not both")
    if not isinstance(options.output_mode, str) or options.output_mode not in _MODES:
        asked = brief(options.output_mode, 80)
        found.append(f"there is no output mode `{asked}`: {', '.join(_MODES)}")
    return found or _wrong_grids(options)


def _wrong_numbers(options: EverythingOptions) -> list[str]:
    found = []
    whole = {
        "points_per_side": 1,
        "points_per_batch": 1,
        "crop_n_layers": 0,
        "crop_n_points_downscale_factor": 1,
    }
    for name, least in whole.items():
        value = getattr(options, name)
        ok = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least
        if not ok and not (name == "points_per_side" and value is None):
            found.append(f"`{name}` is a whole number from {least} up, not `{brief(value, 80)}`")
    found += [
        f"`{name}` is true or false, not `{brief(getattr(options, name), 80)}`"
        for name in ("use_m2m", "multimask")
        if not isinstance(getattr(options, name), bool | np.bool_)
    ]
    for name in _NUMBERS:
        value = getattr(options, name)
        if not _is_number(value) and not (value is None and name in _OF_MODEL):
            found.append(f"`{name}` is a number, not `{brief(value, 80)}`")
    if not found and options.min_mask_region_area < 0:
        found.append(f"`min_mask_region_area` is not negative, got {options.min_mask_region_area}")
    if not found and not 0 <= options.crop_overlap_ratio < 1:
        found.append(f"`crop_overlap_ratio` is from 0 to 1, not {options.crop_overlap_ratio}")
    if not found and options.crop_n_layers > 4:
        found.append("so many layers of crops are too many: at most 4")
    return found


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float | np.integer | np.floating)
    return is_real and not isinstance(value, bool) and bool(abs(value) <= _LARGEST)  # nor NaN


def _wrong_grids(options: EverythingOptions) -> list[str]:
    side, layers = options.points_per_side, options.crop_n_layers
    if side is not None:
        if side**2 > _MOST_POINTS:
            return [f"{brief(side, 40)} points per side are too many"]
        if side < options.crop_n_points_downscale_factor**layers:
            return ["the deepest layer of crops has no points left"]
        return []
    try:
        grids = options.grids
    except (TypeError, ValueError):
        return ["`point_grids` is not a list of arrays [K, 2]"]
    if len(grids) < layers + 1:
        return [f"{len(grids)} point grids are too few for {layers} layers of crops"]
    for grid in grids:
        inside = grid.ndim == 2 and grid.shape[1] == 2 and 0 < len(grid) <= _MOST_POINTS
        if not inside or not ((grid >= 0) & (grid <= 1)).all():
            return ["a point grid is not an array [K, 2] of numbers from 0 to 1"]
    return []
