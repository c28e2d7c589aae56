"""The five names of torchvision that the reference imports, written from their definitions.

They stand in `sys.modules` only while the reference is imported: other packages look for the real
torchvision there and would stumble over this one.
"""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def installed() -> Iterator[None]:
    """Makes `torchvision.transforms` and `torchvision.ops.boxes` importable where they are not."""
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        yield
        return
    from tests.parity import torchvision_modules

    package, ops = ModuleType("torchvision"), ModuleType("torchvision.ops")
    transforms, boxes = ModuleType("torchvision.transforms"), ModuleType("torchvision.ops.boxes")
    for name in ("Normalize", "Resize", "ToTensor"):
        setattr(transforms, name, getattr(torchvision_modules, name))
    for name in ("batched_nms", "box_area"):
        setattr(boxes, name, getattr(torchvision_modules, name))
    stand_ins = {module.__name__: module for module in (package, ops, transforms, boxes)}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
