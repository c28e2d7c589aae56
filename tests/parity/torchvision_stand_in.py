"""The five names of torchvision that the reference imports, written from their definitions.

`install()` puts them into `sys.modules` where torchvision is missing; `torch.jit.script` must be
able to compile `Resize` and `Normalize`, hence the plain annotations.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any


def install() -> None:
    """Make `import torchvision.transforms` and `torchvision.ops.boxes` work."""
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        return
    from tests.parity import torchvision_modules

    transforms = ModuleType("torchvision.transforms")
    boxes = ModuleType("torchvision.ops.boxes")
    for name in ("Normalize", "Resize", "ToTensor"):
        setattr(transforms, name, getattr(torchvision_modules, name))
    for name in ("batched_nms", "box_area"):
        setattr(boxes, name, getattr(torchvision_modules, name))
    package, ops = ModuleType("torchvision"), ModuleType("torchvision.ops")
    _set(package, transforms=transforms, ops=ops)
    _set(ops, boxes=boxes)
    for module in (package, ops, transforms, boxes):
        sys.modules[module.__name__] = module


def _set(module: ModuleType, **names: Any) -> None:
    for name, value in names.items():
        setattr(module, name, value)
