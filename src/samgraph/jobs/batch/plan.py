"""What a run has to do, as a file: a line per input, each input once.

A run of a million inputs holds none of them in memory: 16 bytes per input while the plan is made,
one byte and one input at a time when it is read.
"""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from samgraph.errors import ImageError, SamgraphError
from samgraph.jobs.batch.inputs import Input
from samgraph.media.files import unwritable
from samgraph.untrusted.text import json_bytes, shown


class Plan:
    """The inputs of a run, in a file that is written here and removed by `close`.

    Args:
        path: The file.
        inputs: In any number; the prompts of an input that comes again are added to the first.
        keep: Whether an input is part of the run.

    Raises:
        OutputError: The file cannot be written.
    """

    def __init__(
        self, path: Path, inputs: Iterable[Input], keep: Callable[[Input], bool] = lambda _: True
    ) -> None:
        self._path = path
        keys, offsets = array("Q"), array("Q")
        try:
            with path.open("wb") as file:
                for found in inputs:
                    keys.append(int(found.key, 16))
                    offsets.append(file.tell())
                    file.write(_line(found))
            self._again = {int(n) for n in _repeated(np.array(keys, np.uint64))}
            self._groups = self._merged(keys, offsets)
            self._kept = bytearray(len(keys))
            for number, found in self._joined():
                self._kept[number] = keep(found)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, SamgraphError):
                raise unwritable(path, error) from error
            raise
        self.count = sum(self._kept)

    def __iter__(self) -> Iterator[Input]:
        """Every input that is part of the run, once."""
        return (found for number, found in self._joined() if self._kept[number])

    def _joined(self) -> Iterator[tuple[int, Input]]:
        """Every input once, with the prompts of all its lines."""
        with self._path.open("rb") as file:
            for number, line in enumerate(file):
                if number in self._again:
                    continue
                found = _input(line)
                for offset in self._groups.get(number, ()):
                    found = _with_prompts_of(found, _at(self._path, offset))
                yield number, found

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)

    def _merged(self, keys: "array[int]", offsets: "array[int]") -> dict[int, list[int]]:
        """For inputs that come again: where the further ones are, by the number of the first."""
        if not self._again:
            return {}
        wanted = {keys[number] for number in self._again}
        first: dict[int, int] = {}
        groups: dict[int, list[int]] = {}
        for number, key in enumerate(keys):
            if key in wanted and number in self._again:
                groups.setdefault(first[key], []).append(offsets[number])
            elif key in wanted:
                first[key] = number
        return groups


def _repeated(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The numbers of keys that came before."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    again: NDArray[np.int64] = order[1:][ordered[1:] == ordered[:-1]]
    return again


def _line(found: Input) -> bytes:
    return json_bytes([found.path, found.name, found.prompts], compact=True) + b"\n"


def _input(line: bytes) -> Input:
    path, name, prompts = json.loads(line)
    return Input(path, name, tuple(prompts))


def _at(path: Path, offset: int) -> Input:
    file: IO[bytes]
    with path.open("rb") as file:
        file.seek(offset)
        return _input(file.readline())


def _with_prompts_of(first: Input, second: Input) -> Input:
    """An input that was named twice, with the prompts of both."""
    if first.path != second.path:
        raise ImageError(
            "two inputs have the same key", got=f"`{shown(first.path)}` and `{shown(second.path)}`"
        )
    fresh = tuple(record for record in second.prompts if record not in first.prompts)
    return replace(first, prompts=(*first.prompts, *fresh))
