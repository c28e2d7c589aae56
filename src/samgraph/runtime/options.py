"""How a graph is compiled: engine, precision, threads, profile, cache."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from samgraph.engines import Precision, engine_names
from samgraph.errors import OptionError
from samgraph.passes.pipeline import ALL, PRECISIONS

Stages: TypeAlias = Literal["fused", "split"]


@dataclass(frozen=True, slots=True)
class Profile:
    """A named way to compile: which passes run, in one graph or several stages, in which precision.

    `without` are passes switched off, of those the engine wants; `all` means every one that it can
    do without. `also` are shared passes that it does not want by itself.
    """

    name: str
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    stages: Stages = "fused"
    precision: Precision | None = None

    def __post_init__(self) -> None:
        if self.precision is not None and self.precision not in PRECISIONS:
            raise OptionError(
                f"profile `{self.name}` has unknown precision `{self.precision}`",
                expected=", ".join(PRECISIONS),
            )
        if self.stages not in get_args(Stages):
            raise OptionError(
                f"profile `{self.name}` has unknown stages `{self.stages}`", expected="fused, split"
            )


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("fused"),
        Profile("split", stages="split"),
        Profile("plain", without=(ALL,)),
        Profile("projected-values", without=("absorb_value_projection",)),
    )
}


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What `Session.compile` is told. Anything left alone is chosen for the machine.

    `precision` None means the profile's, and fp32 where it has none. `threads` None means every
    core this process may use. `cache_dir` None means the user's cache folder; `cache` False
    compiles anew each time and writes nothing.
    """

    engine: str | None = None
    precision: Precision | None = None
    threads: int | None = None
    profile: str | Profile = "fused"
    cache_dir: str | os.PathLike[str] | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        if self.engine is not None and self.engine not in engine_names():
            names = ", ".join(engine_names())
            raise OptionError(f"there is no engine `{self.engine}`", expected=names)
        if self.precision is not None and self.precision not in PRECISIONS:
            names = ", ".join(PRECISIONS)
            raise OptionError(f"there is no precision `{self.precision}`", expected=names)
        cores = core_count()
        wrong = isinstance(self.threads, bool) or not isinstance(self.threads, int | None)
        if wrong or (self.threads is not None and not 1 <= self.threads <= cores):
            raise OptionError(
                f"cannot use {self.threads} threads",
                expected=f"1 to {cores}, the cores this process may use",
            )
        if not isinstance(self.profile, Profile) and str(self.profile) not in PROFILES:
            raise OptionError(
                f"there is no profile `{self.profile}`",
                expected=", ".join(PROFILES),
                hint="`read_profiles(path)` reads others from a TOML file",
            )

    @property
    def chosen_profile(self) -> Profile:
        """The profile itself."""
        return PROFILES[self.profile] if isinstance(self.profile, str) else self.profile

    @property
    def chosen_precision(self) -> Precision:
        """The precision itself."""
        return self.precision or self.chosen_profile.precision or "fp32"

    @property
    def chosen_threads(self) -> int:
        """The number of threads itself."""
        return self.threads if self.threads is not None else core_count()

    def with_engine(self, engine: str) -> "CompileOptions":
        """The same options for a named engine."""
        return replace(self, engine=engine)


def core_count() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def read_profiles(path: str | os.PathLike[str]) -> dict[str, Profile]:
    """Profiles from a TOML file, a table each.

    [profile.careful]
    without = ["fuse_linear_activation"]
    also = ["merge_projections"]
    stages = "split"
    """
    name = os.fspath(path)
    try:
        data = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"`{name}` cannot be read", got=error.strerror) from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deep
        raise OptionError(f"`{name}` is not a TOML file", got=str(error)) from error
    tables = data.get("profile")
    if not isinstance(tables, Mapping) or not tables:
        raise OptionError(f"`{name}` has no profile", expected="a table such as [profile.fast]")
    return {key: _read_profile(name, key, table) for key, table in tables.items()}


def _read_profile(path: str, name: str, table: Any) -> Profile:
    if not isinstance(table, Mapping):
        raise OptionError(f"profile `{name}` of `{path}` is not a table")
    unknown = set(table) - {"without", "also", "stages"}
    if unknown:
        raise OptionError(
            f"profile `{name}` of `{path}` has an unknown key",
            got=f"`{sorted(unknown)[0]}`",
            expected="without, also, stages",
        )
    lists = [table.get(key, []) for key in ("without", "also")]
    for value in lists:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise OptionError(f"profile `{name}` of `{path}` needs lists of pass names", got=value)
    return Profile(name, tuple(lists[0]), tuple(lists[1]), table.get("stages", "fused"))
