"""The reference's builders: models by the name of a config file and the path of a checkpoint.

`samgraph-nano`, the built-in model, may be given as the config, the checkpoint or the repository.
Other arguments go to `samgraph.load`: threads, precision, engine, image_size.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from inspect import signature
from pathlib import PurePosixPath
from typing import Any

from samgraph import checkpoint
from samgraph.checkpoint.builtin import NANO, is_built_in
from samgraph.compat.modeling.sam2_base import SAM2Base
from samgraph.compat.sam2_video_predictor import SAM2VideoPredictor, SAM2VideoPredictorVOS
from samgraph.compat.video_settings import VideoSettings, video_settings
from samgraph.engines.devices import DeviceLike
from samgraph.errors import CheckpointError, OptionError
from samgraph.models import families
from samgraph.models.family import SegmentationModel
from samgraph.models.loading import Source, load_model
from samgraph.models.sam2.config import CONFIGS, MEDSAM2
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.predict.options import check_names
from samgraph.untrusted.text import shown

_MEDSAM2_FILE = "sam2.1-hiera-t512"
_FILE = re.compile(r"(?P<name>sam2(\.1)?_hiera_(t|s|b\+|l))\.ya?ml")

# Repositories, with the config and the checkpoint of each.
HF_MODEL_ID_TO_FILENAMES = {
    f"facebook/sam{version}-hiera-{size}": (
        f"configs/sam{version}/sam{version}_hiera_{short}.yaml",
        f"sam{version}_hiera_{size.replace('-', '_')}.pt",
    )
    for version in ("2", "2.1")
    for size, short in (("tiny", "t"), ("small", "s"), ("base-plus", "b+"), ("large", "l"))
}
_OPTIONS = [*signature(load_model).parameters][3:]  # but the source, the config and the device


def build_sam2(
    config_file: str | TrackerConfig,
    ckpt_path: Source | None = None,
    device: DeviceLike = "auto",
    mode: str = "eval",
    hydra_overrides_extra: Sequence[str] = (),
    apply_postprocessing: bool = True,
    **kwargs: Any,
) -> SAM2Base:
    """A model from a checkpoint; `config_file` is the reference's name for its config.

    With `apply_postprocessing`, an unstable single mask is replaced by the best of the multimask
    output. `mode` has no effect.
    """
    settings = video_settings(hydra_overrides_extra, apply_postprocessing=apply_postprocessing)
    core = _loaded(config_file, ckpt_path, device, kwargs)
    return SAM2Base(core, falls_back=settings.dynamic_multimask_via_stability)


def build_sam2_video_predictor(
    config_file: str | TrackerConfig,
    ckpt_path: Source | None = None,
    device: DeviceLike = "auto",
    mode: str = "eval",
    hydra_overrides_extra: Sequence[str] = (),
    apply_postprocessing: bool = True,
    vos_optimized: bool = False,
    **kwargs: Any,
) -> SAM2VideoPredictor:
    """A predictor from a checkpoint; `config_file` must match it.

    `mode` has no effect, and `vos_optimized` only on the class: graphs are always compiled.
    """
    settings: VideoSettings = video_settings(
        hydra_overrides_extra, apply_postprocessing=apply_postprocessing
    )
    kind = SAM2VideoPredictorVOS if vos_optimized else SAM2VideoPredictor
    return kind(_loaded(config_file, ckpt_path, device, kwargs), settings)


def build_sam2_hf(model_id: str, **kwargs: Any) -> SAM2Base:
    """A model by the name of its repository; the weights are downloaded once and checked."""
    return build_sam2(model_id, model_id, **kwargs)


def build_sam2_video_predictor_hf(model_id: str, **kwargs: Any) -> SAM2VideoPredictor:
    """A predictor by the name of its repository; the weights are downloaded once and checked."""
    return build_sam2_video_predictor(model_id, model_id, **kwargs)


def config_named(config_file: str | TrackerConfig) -> TrackerConfig:
    """The config of one of the reference's files, such as `configs/sam2.1/sam2.1_hiera_t.yaml`.

    The files of sister models (`configs/edgetam.yaml`), the name of a model, or a config are
    accepted as well.
    """
    if isinstance(config_file, TrackerConfig):
        return config_file
    path = PurePosixPath(str(config_file).replace("\\", "/"))
    sister = path.name.removesuffix(".yaml").replace("_", "-").lower()
    for family in families():
        own: dict[str, TrackerConfig] = {**family.configs, **family.named}
        if sister in own:
            return own[sister]
    if sister == _MEDSAM2_FILE:
        return MEDSAM2
    found = _FILE.fullmatch(path.name)
    try:
        return CONFIGS[checkpoint.normalise(found["name"] if found else str(config_file))]
    except CheckpointError as error:
        names = [name for family in families() for name in (*family.configs, *family.named)]
        near = get_close_matches(sister, names, n=1)
        raise OptionError(
            f"there is no config `{shown(str(config_file))}`",
            expected="a file such as `configs/sam2.1/sam2.1_hiera_t.yaml`, or " + ", ".join(names),
            hint=f"did you mean `{near[0]}`?" if near else None,
        ) from error


def _loaded(
    config_file: str | TrackerConfig,
    ckpt_path: Source | None,
    device: DeviceLike,
    options: dict[str, Any],
) -> SegmentationModel:
    """The model of a checkpoint; the built-in model has its own config."""
    check_names(options, _OPTIONS, "the builder")
    if ckpt_path is None and is_built_in(config_file):
        ckpt_path = NANO.name
    if ckpt_path is None:
        raise CheckpointError(
            "a model needs weights",
            got="ckpt_path=None",
            hint=f"give the path of a checkpoint, or `{NANO.name}`",
        )
    config = None if is_built_in(ckpt_path) else config_named(config_file)
    return load_model(ckpt_path, config=config, device=device, **options)
