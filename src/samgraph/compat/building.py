"""Configs by the names of the reference's config files."""

import re
from pathlib import PurePosixPath

from samgraph import checkpoint
from samgraph.errors import CheckpointError, OptionError
from samgraph.models.sam2.config import CONFIGS, Sam2Config

_FILE = re.compile(r"(?P<name>sam2(\.1)?_hiera_(t|s|b\+|l))\.ya?ml")


def config_named(config_file: str | Sam2Config) -> Sam2Config:
    """The config of one of the reference's files, such as `configs/sam2.1/sam2.1_hiera_t.yaml`.

    The name of a model, or a config, is accepted as well.
    """
    if isinstance(config_file, Sam2Config):
        return config_file
    found = _FILE.fullmatch(PurePosixPath(str(config_file).replace("\\", "/")).name)
    try:
        return CONFIGS[checkpoint.normalise(found["name"] if found else str(config_file))]
    except CheckpointError as error:
        raise OptionError(
            f"there is no config `{config_file}`",
            expected="a file such as `configs/sam2.1/sam2.1_hiera_t.yaml`, or "
            + ", ".join(CONFIGS),
        ) from error
