"""Writing golden files: the other half of `reading.py`."""

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Recorder:
    """Collects arrays, recipes and facts, then writes them as one file.

    An array of more than `limit` values is stored in part.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.index: dict[str, dict[str, Any]] = {}
        self.arrays: dict[str, Array] = {}
        self.whole: dict[str, Array] = {}
        self.meta: dict[str, Any] = {}

    def randn(self, name: str, seed: int, shape: tuple[int, ...], scale: float = 1.0) -> Array:
        """An input that is a recipe; returns its value."""
        self.index[name] = {"recipe": "randn", "seed": seed, "shape": shape, "scale": scale}
        values = np.random.RandomState(seed).standard_normal(shape)
        return (values * scale).astype(np.float32)

    def add(self, name: str, array: Array, *, limit: int | None = None, **facts: Any) -> None:
        """An array, with facts such as its layout."""
        self.whole[name] = array
        entry: dict[str, Any] = {"shape": array.shape}
        step = 1
        if array.dtype.kind == "f":
            double = array.astype(np.float64)
            entry |= {"mean": double.mean(), "std": double.std(), "absmax": np.abs(double).max()}
            array = array.astype(np.float32)
            step = _step(array.shape, limit or self.limit)
        entry |= {"dtype": str(array.dtype), "step": step, **facts}
        self.index[name] = entry
        self.arrays[name] = array if step == 1 else array.reshape(-1)[::step]

    def add_all(self, prefix: str, named: dict[str, Array], **facts: Any) -> None:
        """Several arrays whose names get `prefix`."""
        for name, array in named.items():
            self.add(prefix + name, array, **facts)

    def bits(self, name: str, mask: Array) -> None:
        """A boolean mask, packed along its last axis."""
        self.whole[name] = mask
        self.index[name] = {"shape": mask.shape, "packbits_axis": -1, "true_count": mask.sum()}
        self.arrays[name] = np.packbits(mask, axis=-1)

    def write(self, path: Path) -> int:
        """Write the file, the same bytes for the same numbers; its size."""
        text = json.dumps(self.index | {"__meta__": self.meta}, default=_plain)
        arrays = self.arrays | {"__index__": np.frombuffer(text.encode(), np.uint8)}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
                info = zipfile.ZipInfo(f"{name}.npy", date_time=(2025, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(info, buffer.getvalue(), compresslevel=9)
        return path.stat().st_size


def _step(shape: tuple[int, ...], limit: int) -> int:
    """1, or a prime that divides no axis, so that the samples fall on every row and column."""
    step = math.ceil(math.prod(shape) / limit)
    if step <= 1:
        return 1
    while not _is_prime(step) or any(n % step == 0 for n in shape):
        step += 1
    return step


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1))


def _plain(value: Any) -> Any:
    """A numpy scalar as the number JSON knows."""
    return value.item()
