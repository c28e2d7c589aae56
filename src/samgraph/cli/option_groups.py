"""Options of a command, gathered into the frozen classes that the library takes."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Option = Callable[[Decorated], Decorated]


def option_group(name: str, kind: type, *options: Option[Any]) -> Option[Any]:
    """Adds click options; the command gets their values as one `kind`, called `name`.

    Each option is named after a field of the dataclass `kind`; other fields keep their default.
    """
    known = {field.name for field in fields(kind)}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def grouped(*args: Any, **given: Any) -> Any:
            values = {key: given.pop(key) for key in known & given.keys()}
            return command(*args, **given, **{name: kind(**values)})

        for option in reversed(options):
            grouped = option(grouped)
        return grouped

    return decorate


def write_options(*names: str) -> Option[Any]:
    """The named ones of --label, --tolerance and --crop; the command gets `write`."""
    from samgraph.formats.table import WriteOptions

    known = {
        "label": click.option(
            "--label", metavar="NAME", help="What the objects are called in annotations."
        ),
        "tolerance": click.option(
            "--tolerance",
            type=click.FloatRange(min=0),
            default=0.0,
            metavar="PIXELS",
            help="How far polygons may be from the mask's edge; above 0, annotations get polygons.",
        ),
        "crop": click.option("--crop", is_flag=True, help="Crop a cut-out to the object."),
    }
    return option_group("write", WriteOptions, *(known[name] for name in names))
