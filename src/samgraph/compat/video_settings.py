"""The options of the reference's video predictor, and which of them exist here.

`hydra_overrides_extra=["++model.NAME=VALUE"]` sets an option by the reference's name.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from samgraph.errors import OptionError
from samgraph.predict.video.bank import MemoryPrecision

_OVERRIDE = re.compile(r"\+{0,2}model\.(?P<name>[A-Za-z0-9_.]+)=(?P<value>.*)", re.DOTALL)
_DECODER = "sam_mask_decoder_extra_args.dynamic_multimask_"


@dataclass(frozen=True, slots=True)
class VideoSettings:
    """The options of a video predictor, by the reference's names.

    `memory_precision` is not in the reference: "bf16" is what it does, "fp32" does not round.
    """

    fill_hole_area: int = 0
    non_overlap_masks: bool = False
    add_all_frames_to_correct_as_cond: bool = False
    max_cond_frames_in_attn: int = -1
    memory_temporal_stride_for_eval: int = 1
    binarize_mask_from_pts_for_mem_enc: bool = False
    dynamic_multimask_via_stability: bool = False
    memory_precision: MemoryPrecision = "bf16"


# What `apply_postprocessing` enables.
POSTPROCESSING = {
    "fill_hole_area": 8,
    "binarize_mask_from_pts_for_mem_enc": True,
    "dynamic_multimask_via_stability": True,
}
# Options without effect here: always the case, or specific to torch.
_WITHOUT_EFFECT = frozenset(
    (
        "_target_",
        "compile_image_encoder",
        # Memories are encoded per object, in the reference too: nothing can overlap.
        "non_overlap_masks_for_mem_enc",
    )
)
# Options with the same value in every released model.
_FIXED: dict[str, Any] = {
    f"{_DECODER}stability_delta": 0.05,
    f"{_DECODER}stability_thresh": 0.98,
    "clear_non_cond_mem_around_input": False,
}


def video_settings(overrides: Iterable[str], *, apply_postprocessing: bool) -> VideoSettings:
    """The settings of a predictor.

    Differs from the original: there, what `apply_postprocessing` sets wins over an override.

    Raises:
        OptionError: An override names an option that does not exist here.
    """
    settings = VideoSettings(**(POSTPROCESSING if apply_postprocessing else {}))  # type: ignore[arg-type]  # the table holds what the fields take
    for override in overrides:
        settings = _with_override(settings, override)
    return settings


def _with_override(settings: VideoSettings, override: str) -> VideoSettings:
    found = _OVERRIDE.fullmatch(override.strip())
    if not found:
        raise OptionError(f"`{override}` is not an override", expected="`++model.NAME=VALUE`")
    name, text = found["name"], found["value"].strip()
    if name == f"{_DECODER}via_stability":
        name = "dynamic_multimask_via_stability"
    if name in _WITHOUT_EFFECT:
        return settings
    if name in _FIXED:
        if _value(name, text, type(_FIXED[name])) != _FIXED[name]:
            raise OptionError(f"`{name}` is fixed", got=text, expected=_FIXED[name])
        return settings
    kinds = {field.name: type(getattr(settings, field.name)) for field in fields(settings)}
    if name not in kinds:
        raise OptionError(
            f"there is no option `{name}` here",
            got=f"`{override}`",
            expected=", ".join([*kinds, *_FIXED, *sorted(_WITHOUT_EFFECT)]),
        )
    return replace(settings, **{name: _value(name, text, kinds[name])})


def _value(name: str, text: str, kind: type) -> Any:
    """The text of an override as a value."""
    plain = text.strip("'\"")
    if kind is bool and plain.lower() in ("true", "false"):
        return plain.lower() == "true"
    if kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            pass
    if kind is str:
        return plain
    raise OptionError(f"`{name}` cannot be `{text}`", expected=f"a value of type {kind.__name__}")
