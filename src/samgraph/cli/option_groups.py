"""Options of a command: gathered into the frozen classes of the library, and help in sections."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeAlias

import click

from samgraph.formats.table import WriteOptions
from samgraph.predict.video.policies.table import DEFAULT, POLICIES

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
_SECTION = "section"
policy_option = click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default=DEFAULT,
    show_default=True,
    help="What frames read of memory: "
    + "; ".join(f"{entry.name}: {entry.summary}" for entry in POLICIES.values())
    + ".",
)


class SectionedCommand(click.Command):
    """A command whose help has its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections in the order of their first option; those without one are last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(vars(param).get(_SECTION, "Other"), []).append(record)
        for title in sorted(sections, key=lambda title: title == "Other"):
            with formatter.section(title):
                formatter.write_dl(sections[title])


def section(title: str, *decorators: Any) -> Decorator:
    """Applies decorators that add options; they are one section of the help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        before = len(vars(command).get("__click_params__", ()))
        for decorator in reversed(decorators):
            command = decorator(command)
        for param in vars(command)["__click_params__"][before:]:
            vars(param).setdefault(_SECTION, title)
        return command

    return decorate


def option_group(name: str, kind: type, *options: Any) -> Decorator:
    """Adds click options; the command gets their values as one `kind`, called `name`.

    Each option is named after a field of the dataclass `kind`. A field without an option, or whose
    option is not given and has no default, keeps its own default.
    """
    known = {field.name for field in fields(kind)}
    own: set[str | None] = set()

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        before = len(vars(command).get("__click_params__", ()))

        @wraps(command)
        def grouped(*args: Any, **given: Any) -> Any:
            values = {key: given.pop(key) for key in known & own & given.keys()}
            chosen = {key: value for key, value in values.items() if value is not None}
            return command(*args, **given, **{name: kind(**chosen)})

        for option in reversed(options):
            grouped = option(grouped)
        own.update(param.name for param in vars(grouped)["__click_params__"][before:])
        return grouped

    return decorate


def write_options(*names: str) -> Decorator:
    """--label, --tolerance and --crop, those named; the command gets `write`."""
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


def click_options(point: click.ParamType) -> tuple[Decorator, Decorator]:  # type: ignore[type-arg]  # not generic in click 8.1
    """--point and --negative, each of which may be repeated; `point` parses a coordinate."""
    positive = click.option(
        "--point", "points", multiple=True, type=point, help="A positive click: on the object."
    )
    negative = click.option(
        "--negative",
        "negatives",
        multiple=True,
        type=point,
        help="A negative click: not the object.",
    )
    return positive, negative
