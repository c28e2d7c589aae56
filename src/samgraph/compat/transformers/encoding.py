"""What processors give and models return: mappings whose items are attributes too."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.host import to_host
from samgraph.compat.tensor import Tensor, tensor
from samgraph.errors import PromptError


class BatchEncoding(dict[str, Any]):
    """The inputs of a model, by name."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"there is no `{name}`; there are {', '.join(self)}")
        return self[name]

    @property
    def data(self) -> dict[str, Any]:
        """The inputs as a plain dict."""
        return dict(self)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Itself: inputs are uploaded when the model runs, and are float32."""
        return self


class ModelOutput:
    """The outputs of a model: fields, by name, as items, or in order."""

    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def keys(self) -> list[str]:
        """The names of what is there."""
        return [name for name, _ in self.items()]

    def items(self) -> list[tuple[str, Any]]:
        """Names and values."""
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]  # type: ignore[arg-type]  # every output is a dataclass
        return [(name, value) for name, value in pairs if value is not None]

    def to_tuple(self) -> tuple[Any, ...]:
        """The values in order."""
        return tuple(value for _, value in self.items())


def nested(values: Any, depth: int, what: str, width: int | None) -> list[Any] | None:
    """Nested lists of `depth` levels, the last of `width` numbers, from lists, arrays or tensors.

    Raises:
        PromptError: There are more or fewer levels, or other numbers of coordinates.
    """
    if values is None:
        return None
    lists: list[Any] = _lists(values)
    if _depth(lists) != depth:
        raise PromptError(
            f"`input_{what}` must be nested {depth} levels deep",
            got=f"{_depth(lists)} levels",
            expected="[image, object, point, x and y]"
            if what == "points"
            else "[image, object, label]"
            if what == "labels"
            else "[image, object, box]",
        )
    if width is not None and any(len(row) != width for row in _rows(lists, depth)):
        raise PromptError(f"`input_{what}` are rows of {width} numbers")
    return lists


def padded(lists: list[Any], depth: int, fill: float) -> NDArray[np.float32]:
    """Nested lists as an array, shorter lists padded."""
    lengths = [max((len(row) for row in _rows(lists, n)), default=0) for n in range(1, depth + 1)]
    out = np.full(lengths, fill, np.float32)
    for index in np.ndindex(*lengths[:-1]):
        row: Any = lists
        for n in index:
            row = row[n] if n < len(row) else []
        out[index][: len(row)] = row
    return out


def _lists(values: Any) -> Any:
    host = to_host(values)
    if isinstance(host, np.ndarray | np.generic):
        return host.tolist()
    if isinstance(host, Sequence) and not isinstance(host, str | bytes):
        return [_lists(item) for item in host]
    return host


def _depth(values: Any) -> int:
    if not isinstance(values, list):
        return 0
    return 1 + (_depth(values[0]) if values else 0)


def _rows(lists: list[Any], level: int) -> list[list[Any]]:
    """The lists `level` levels down, counted from 1."""
    rows = [lists]
    for _ in range(level - 1):
        rows = [row for rows_of in rows for row in rows_of]
    return rows


def as_sizes(sizes: Any) -> list[tuple[int, int]]:
    """Heights and widths, from lists, arrays or tensors."""
    found = np.asarray(to_host([to_host(size) for size in sizes]))
    return [(int(height), int(width)) for height, width in found.reshape(-1, 2)]


def tensor_of(values: Any, dtype: Any) -> Tensor:
    """Values as a tensor of a dtype."""
    return tensor(np.asarray(values, dtype))
