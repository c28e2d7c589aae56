"""Rules for checkpoints of any format: names, ranks, nesting, sizes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

LONGEST_NAME = 512
HIGHEST_RANK = 16
LARGEST = 2**48  # values in a tensor
LONGEST_EMPTY = 2**16  # side of an empty tensor, which takes no bytes of the file
MOST_TENSORS = 20_000  # the largest SAM 2 has a thousand, a long session some thousands

# Keys under which training code stores the weights, tried in this order.
WRAPPERS = ("model", "state_dict", "model_state_dict")
DEEPEST_WRAPPING = 3


def check_name(name: object, source: str) -> str:
    """Return `name` if it is a valid tensor name: short, printable, and not like a path."""
    if not isinstance(name, str):
        raise CheckpointError(
            f"`{source}` has a tensor whose name is not text", got=type(name).__name__
        )
    fault = None
    if not name:
        fault = "is empty"
    elif len(name) > LONGEST_NAME:
        fault = f"has {len(name):,} characters, more than {LONGEST_NAME}"
    elif not name.isprintable():
        fault = "has characters that cannot be printed"
    elif name == "__metadata__":
        fault = "is reserved"
    elif ".." in name or name.startswith("/") or "\\" in name:
        fault = "looks like a path"
    if fault:
        raise CheckpointError(f"`{source}` has a tensor name that {fault}", got=f"`{shown(name)}`")
    return name


def check_shape(shape: object, name: str, source: str) -> tuple[int, ...]:
    """Return `shape` as a tuple, if it is a list of non-negative ints of a supported rank."""
    if not isinstance(shape, list | tuple):
        raise CheckpointError(
            f"`{source}`: the shape of `{shown(name)}` is not a list", got=type(shape).__name__
        )
    if len(shape) > HIGHEST_RANK:
        raise CheckpointError(
            f"`{source}`: `{shown(name)}` has too many dimensions",
            got=len(shape),
            expected=f"at most {HIGHEST_RANK}",
        )
    if any(type(size) is not int or size < 0 for size in shape) or not is_addressable(shape):
        raise CheckpointError(
            f"`{source}`: the shape of `{shown(name)}` is impossible",
            got=shown(", ".join(str(size)[:24] for size in shape)),
        )
    return tuple(shape)


def is_addressable(shape: Sequence[int]) -> bool:
    """Whether an array of `shape` can exist; the other sides of an empty array are limited too."""
    limit = LARGEST if all(shape) else LONGEST_EMPTY
    return math.prod(max(size, 1) for size in shape) < limit


def unwrap(tree: Mapping[Any, object]) -> Mapping[Any, object]:
    """The mapping of tensors inside `{"model": {...}}` and the like, or `tree` itself."""
    for _ in range(DEEPEST_WRAPPING):
        inner = next((tree[key] for key in WRAPPERS if isinstance(tree.get(key), Mapping)), None)
        if not isinstance(inner, Mapping):
            break
        tree = inner
    return tree


def check_count(count: int, source: str) -> None:
    """Refuse a checkpoint without tensors, or with more than any model has."""
    if not 0 < count <= MOST_TENSORS:
        raise CheckpointError(
            f"`{source}` holds no weights" if not count else f"`{source}` has too many tensors",
            got=f"{count:,} tensors",
            expected=f"1 to {MOST_TENSORS:,}",
        )
