"""Reading golden files: recorded numbers of the reference, our own and the shared files.

A file is an npz with a JSON `__index__`: one entry an array, recipes of inputs, and `__meta__`.
Big arrays are stored as every `step`-th value, with mean, deviation and largest value of the whole.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

HERE = Path(__file__).resolve().parent


class Golden:
    """One golden file."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with np.load(self.path) as file:
            self._arrays: dict[str, Array] = {name: file[name] for name in file.files}
        text = self._arrays.pop("__index__").tobytes()
        self.index: dict[str, dict[str, Any]] = json.loads(text)
        self.meta: dict[str, Any] = self.index.pop("__meta__")

    @property
    def weights_seed(self) -> int:
        """Seed of the weights behind the numbers."""
        return int(self.meta["weights_seed"])

    def names(self, prefix: str = "") -> list[str]:
        """Names of arrays and inputs that start with `prefix`, in the order of recording."""
        return [name for name in self.index if name.startswith(prefix)]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the whole array."""
        return tuple(self.index[name]["shape"])

    def input(self, name: str) -> Array:
        """An input: made from its recipe, or a stored array that is whole."""
        entry = self.index[name]
        if entry.get("recipe") == "randn":
            values = np.random.RandomState(entry["seed"]).standard_normal(entry["shape"])
            made: Array = (values * entry["scale"]).astype(np.float32)
            return made
        if entry.get("step") != 1:
            raise ValueError(f"`{name}` is stored in part, so it cannot be an input")
        return self._arrays[name]

    def stored(self, name: str) -> Array:
        """The values in the file: the whole array if its step is 1, else one in `step`, flat."""
        return self._arrays[name]

    def bits(self, name: str) -> npt.NDArray[np.bool_]:
        """A boolean mask, unpacked."""
        entry = self.index[name]
        axis = entry["packbits_axis"]
        whole = np.unpackbits(self._arrays[name], axis=axis)
        return whole[..., : entry["shape"][axis]].astype(np.bool_)

    def difference(self, name: str, array: Array) -> float:
        """The largest difference to the recorded array.

        Where only a part is stored, also the differences of mean, deviation and largest value of
        the whole, none of which can exceed the largest difference: so all of `array` counts.
        """
        entry = self.index[name]
        if tuple(array.shape) != self.shape(name):
            raise ValueError(f"`{name}` has shape {self.shape(name)}, got {tuple(array.shape)}")
        mine = np.asarray(array, np.float64)
        step = int(entry["step"])
        part = mine if step == 1 else mine.reshape(-1)[::step]
        worst = float(np.abs(part - self._arrays[name]).max(initial=0.0))
        if step == 1:
            return worst
        whole = (mine.mean(), mine.std(), np.abs(mine).max())
        recorded = (entry["mean"], entry["std"], entry["absmax"])
        pairs = zip(whole, recorded, strict=True)
        return max(worst, *(abs(float(a) - float(b)) for a, b in pairs))

    def compare(self, name: str, array: Array) -> float:
        """The largest difference, relative to the largest value of the recorded array."""
        absmax = float(self.index[name].get("absmax", 1.0))
        return self.difference(name, array) / (absmax or 1.0)

    def disagreement(self, name: str, mask: Array) -> float:
        """The share of pixels at which a boolean mask differs from the recorded one."""
        recorded = self.bits(name)
        if recorded.shape != mask.shape:
            raise ValueError(f"`{name}` has shape {recorded.shape}, got {mask.shape}")
        return float(np.mean(recorded != mask))


def golden(name: str) -> Golden:
    """One of our own files by its name, such as `components_test`."""
    return Golden(HERE / f"{name}.npz")


def shared_golden_dir() -> Path | None:
    """The golden data beside the project, where there is such a folder."""
    folder = HERE.parents[2] / "shared" / "golden"
    return folder if folder.is_dir() else None


def families_dir() -> Path:
    """The golden data of the sister models (`pytest.mark.shared("golden-families")`)."""
    return HERE.parents[2] / "shared" / "golden-families"


def disc_mask(size: int) -> npt.NDArray[np.bool_]:
    """The disc used as mask prompt, [size, size] (`disc_mask` in `__meta__`)."""
    y, x = np.mgrid[:size, :size]
    inside: npt.NDArray[np.bool_] = (x - 0.4 * size) ** 2 + (y - 0.55 * size) ** 2 < (
        0.23 * size
    ) ** 2
    return inside
