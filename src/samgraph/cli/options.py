"""Options that commands share: which model, which files, and coordinates as people type them."""

import glob
import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from samgraph.checkpoint.builtin import NANO
from samgraph.errors import ImageError
from samgraph.media.video.frames import image_files
from samgraph.untrusted.text import shown

if TYPE_CHECKING:
    from samgraph.runtime import CompileOptions

STREAM = "-"

Function = TypeVar("Function", bound=Callable[..., Any])


class Numbers(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """A fixed count of numbers separated by commas, such as `500,375`."""

    def __init__(self, *names: str) -> None:
        self.name = ",".join(names)
        self._count = len(names)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """The numbers in the text."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if len(numbers) != self._count or not all(map(math.isfinite, numbers)):
            self.fail(f"`{value}` is not {self._count} numbers, as in {self.name}", param, ctx)
        return numbers


class FilePath(click.Path):
    """A path as `click.Path` has it; what can be no path at all is a usage error, too."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path."""
        try:
            return super().convert(value, param, ctx)
        except ValueError:  # a zero in it, or characters that no file name has
            self.fail(f"`{shown(str(value))}` cannot be the name of a file", param, ctx)


POINT = Numbers("X", "Y")
BOX = Numbers("X0", "Y0", "X1", "Y1")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model a command uses, and how to run it; loaded when it is needed."""

    model: str
    device: str
    engine: str | None
    asked_precision: str | None
    threads: int | None
    profile: str | None
    image_size: int | None
    approximation: str | None = None

    @property
    def precision(self) -> str | None:
        """As requested, or the profile's; None: the device's default."""
        return self.compile_options().asked_precision

    def load(self, *, cache: bool = True) -> Any:
        """The model: the built-in one, or one that is downloaded once."""
        from samgraph.predict.model import load

        options = self.compile_options(cache=cache)
        return load(self.model, device=self.device, image_size=self.image_size, options=options)

    def compile_options(self, *, cache: bool = True) -> "CompileOptions":
        """How graphs are compiled."""
        from samgraph.models.loading import weights_file
        from samgraph.runtime import CompileOptions, find_profile

        return CompileOptions(
            engine=self.engine,
            precision=self.asked_precision,  # type: ignore[arg-type]  # checked there
            threads=self.threads,
            profile=find_profile(self.profile, weights_file(self.model)),
            cache=cache,
            approximation=self.approximation,
        )


class _DeviceOption(click.Option):
    """--device, whose help says what this machine has."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from samgraph.runtime.devices import devices_here

        self.help = f"Where to run: {devices_here()}."
        return super().get_help_record(ctx)


class _ApproximateOption(click.Option):
    """--approximate, whose help says which approximations there are."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from samgraph.runtime import APPROXIMATIONS

        names = ", ".join(APPROXIMATIONS)
        self.help = f"Compute less, at a cost in quality: {names} (docs/performance.md)."
        return super().get_help_record(ctx)


def model_options(function: Function, *, profile: str = "--profile") -> Callable[..., Any]:
    """Adds --model and how to run it; the command gets them as `choice`, a `ModelChoice`.

    `profile` is what the option for the profile is called.
    """

    @click.option(
        "--model",
        default=NANO.name,
        show_default=True,
        metavar="NAME|PATH",
        help="A model by name (`samgraph models` lists them), or a checkpoint.",
    )
    @click.option(
        "--device", cls=_DeviceOption, default="auto", show_default=True, help="Where to run."
    )
    @click.option("--engine", metavar="NAME", help="What runs it; by default the device's engine.")
    @click.option(
        "--precision",
        type=click.Choice(["fp32", "tf32", "bf16", "fp16"]),
        help="Of all but the decoder, which is exact. By default fp32 on a CPU, bf16 on a GPU.",
    )
    @click.option("--threads", type=click.IntRange(min=1), help="Cores to use; by default all.")
    @click.option(
        profile,
        "profile",
        metavar="NAME|PATH",
        help="How to compile: fused, split, plain, one of `x.profiles.toml` next to `x.pt`, or a "
        "TOML file.",
    )
    @click.option("--image-size", type=int, help="Input size, if not the model's own.")
    @click.option(
        "--approximate",
        "approximation",
        cls=_ApproximateOption,
        metavar="NAME",
        help="Compute less, at a cost in quality.",
    )
    @wraps(function)
    def with_choice(
        *args: Any,
        model: str,
        device: str,
        engine: str | None,
        precision: str | None,
        threads: int | None,
        profile: str | None,
        image_size: int | None,
        approximation: str | None,
        **kwargs: Any,
    ) -> Any:
        choice = ModelChoice(
            model, device, engine, precision, threads, profile, image_size, approximation
        )
        return function(*args, choice=choice, **kwargs)

    return with_choice


def find_files(patterns: Iterable[str]) -> list[str]:
    """The files that paths and patterns name, each once, in the order given.

    A folder means the images in it. A path that exists is not a pattern, even with a star in
    it; `-` is standard input. A pattern without a match is kept, and reported as any other file
    that cannot be read.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        matches = [pattern]
        if pattern != STREAM and os.path.isdir(pattern):
            matches = [str(path) for path in image_files(pattern)]
        if pattern != STREAM and not os.path.exists(pattern) and glob.has_magic(pattern):
            matches = sorted(glob.glob(pattern, recursive=True)) or [pattern]
        found.update(dict.fromkeys(matches))
    return list(found)


def read_source(path: str) -> Any:
    """The source a path names: the path itself, or for `-` the bytes of standard input.

    Raises:
        ImageError: Standard input is empty.
    """
    if path != STREAM:
        return path
    data = sys.stdin.buffer.read()
    if not data:
        raise ImageError("there is nothing on standard input", expected="an image")
    return data
