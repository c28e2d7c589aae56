"""`sam2` for programs that cannot be edited: their imports find the modules of `samgraph.compat`.

import samgraph.compat

samgraph.compat.install()
from sam2.build_sam import build_sam2  # samgraph's
"""

import importlib
import sys

from samgraph.errors import OptionError

NAME = "sam2"
_HERE = "samgraph.compat"
_MODULES = (
    "",
    ".automatic_mask_generator",
    ".build_sam",
    ".modeling",
    ".modeling.sam2_base",
    ".sam2_image_predictor",
    ".sam2_video_predictor",
    ".utils",
    ".utils.amg",
    ".utils.misc",
    ".utils.transforms",
)


def install() -> None:
    """Put these modules under the name `sam2`, for this process; calling it again does nothing.

    Raises:
        OptionError: The `sam2` package itself is imported already.
    """
    found = sys.modules.get(NAME)
    if found is not None and found is not sys.modules.get(_HERE):
        raise OptionError(
            "another `sam2` is imported already",
            got=f"`{getattr(found, '__file__', None) or 'a module without a file'}`",
            hint="call `samgraph.compat.install()` before anything imports `sam2`",
        )
    for module in _MODULES:
        sys.modules[f"{NAME}{module}"] = importlib.import_module(f"{_HERE}{module}")


def uninstall() -> None:
    """Remove the name `sam2`; what was imported under it keeps working."""
    for module in _MODULES:
        name = f"{NAME}{module}"
        if sys.modules.get(name) is sys.modules.get(f"{_HERE}{module}"):
            sys.modules.pop(name, None)
