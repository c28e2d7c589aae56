"""Telling how far a long job is: a function of the caller's, a bar on the terminal, or nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from samgraph.errors import printable

Progress: TypeAlias = Callable[[int, int], object]


@contextmanager
def reporting(
    progress: bool | Progress | None, name: str, total: int
) -> Iterator[Callable[[int], None]]:
    """A function to call with what was done since the last call.

    `progress` is a function of what is done and of all there is to do; True or False for a bar or
    none; None for a bar where standard error is a terminal.
    """
    if progress is None:
        progress = sys.stderr is not None and sys.stderr.isatty()
    if isinstance(progress, bool):
        if progress:
            with _bar(name, total) as advance:
                yield advance
        else:
            yield lambda step: None
        return
    tell, done = progress, 0

    def add(step: int) -> None:
        nonlocal done
        done += step
        tell(done, total)

    yield add


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Share done, count, time left; plain text where standard error is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(printable(name), total=total)
        yield lambda step: bars.advance(task, step)
