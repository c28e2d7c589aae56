"""Where `from_pretrained` finds weights, and which of its options mean something here."""

import os
from pathlib import Path
from typing import Any

from samgraph.engines.devices import AUTO
from samgraph.errors import CheckpointError
from samgraph.runtime import CompileOptions
from samgraph.runtime.devices import choose

# Options of `samgraph.load`; what else the library takes is about downloads, dtypes and code.
_OWN = ("threads", "precision", "engine", "profile", "image_size", "options", "mirror")
WEIGHTS = "model.safetensors"
_FILES = (WEIGHTS, "pytorch_model.bin")


def weights_of(source: Any) -> Any:
    """A name, a file or a mapping as it is; of a folder, the weights in it."""
    if not isinstance(source, str | os.PathLike) or not Path(source).is_dir():
        return source
    for name in _FILES:
        if (Path(source) / name).is_file():
            return str(Path(source) / name)
    raise CheckpointError(
        f"`{os.fspath(source)}` holds no weights", expected=" or ".join(f"`{n}`" for n in _FILES)
    )


def load_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The options of `from_pretrained` as those of `samgraph.load`."""
    options = {name: kwargs[name] for name in _OWN if name in kwargs}
    device = kwargs.get("device", kwargs.get("device_map"))
    if isinstance(device, dict):
        device = next(iter(device.values()), None)
    if isinstance(device, int) and not isinstance(device, bool):
        device = f"cuda:{device}" if device >= 0 else "cpu"
    return options if device is None else options | {"device": device}


def infer_device() -> str:
    """The device that a model chooses by itself, such as `cpu` or `cuda`."""
    return str(choose(AUTO, CompileOptions(), None).device)
