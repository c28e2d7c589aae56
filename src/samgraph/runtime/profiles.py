"""Profiles: named ways to compile, built in, from a TOML file, or from a file next to the weights.

    [profile.careful]
    without = ["fuse_linear_activation"]     # passes switched off; "all": all but required ones
    also = ["merge_projections"]             # shared passes that are not in the engine's pipeline
    stages = "split"                         # memory attention as a graph per stage
    precision = "bf16"

`weights.profiles.toml` next to `weights.pt` is read when these weights are loaded. Its profiles are
available by name, and a profile called `default` is used when none is given.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from samgraph.errors import OptionError
from samgraph.passes.pipeline import ALL, PRECISIONS, Precision
from samgraph.untrusted.files import read_regular
from samgraph.untrusted.text import shown

Stages: TypeAlias = Literal["fused", "split"]

DEFAULT = "default"
_SUFFIX = ".profiles.toml"
_KEYS = ("without", "also", "stages", "precision")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Profile:
    """A named way to compile: which passes run, in one graph or several stages, in which precision.

    `without` are passes of the engine's pipeline to switch off; `all` means every pass that is not
    required. `also` are shared passes to add. The names are checked when the engine is known.
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
                f"profile `{self.name}` has unknown stages `{self.stages}`",
                expected=", ".join(get_args(Stages)),
            )


ProfileLike: TypeAlias = str | os.PathLike[str] | Profile

FUSED = Profile("fused")
PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        FUSED,
        Profile("split", stages="split"),
        Profile("plain", without=(ALL,)),
        Profile("projected-values", without=("absorb_value_projection",)),
    )
}


def find_profile(
    asked: ProfileLike | None, weights: str | os.PathLike[str] | None = None
) -> Profile:
    """The profile for a `Profile`, a name, or a TOML file, `file.toml#name` of several.

    Without one, the default of the file next to the weights, or `fused`.
    """
    if isinstance(asked, Profile):
        return asked
    beside = profiles_beside(weights) if weights is not None else {}
    if asked is None:
        return beside.get(DEFAULT, FUSED)
    text = os.fspath(asked) if isinstance(asked, str | os.PathLike) else str(asked)
    found = beside.get(text) or PROFILES.get(text)
    if found is not None:
        return found
    path, _, name = text.rpartition("#") if "#" in text else (text, "", "")
    if path.endswith(".toml"):
        return _one_of(path, name)
    raise OptionError(
        f"there is no profile `{text}`",
        expected=", ".join({**PROFILES, **beside}),
        hint="a path that ends in `.toml` is read as a file of profiles",
    )


def profiles_beside(weights: str | os.PathLike[str]) -> dict[str, Profile]:
    """The profiles in the file next to the weights, `x.profiles.toml` for `x.pt`; often none."""
    file = Path(weights)
    path = file.with_suffix(_SUFFIX) if file.name else file
    return read_profiles(path) if os.path.isfile(path) else {}


def read_profiles(path: str | os.PathLike[str]) -> dict[str, Profile]:
    """Profiles from a TOML file, a table each."""
    name = shown(os.fspath(path))
    try:
        data = read_regular(path, _MOST_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero in it
        why = error.strerror if isinstance(error, OSError) else error
        raise OptionError(f"`{name}` cannot be read", got=why) from error
    if data is None:
        raise OptionError(f"`{name}` is too large for a file of profiles", expected="at most 1 MB")
    try:
        found = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deep
        raise OptionError(f"`{name}` is not a TOML file", got=shown(str(error))) from error
    tables = found.get("profile")
    if not isinstance(tables, Mapping) or not tables:
        raise OptionError(f"`{name}` has no profile", expected="a table such as [profile.fast]")
    return {key: _read_profile(name, key, table) for key, table in tables.items()}


def _one_of(path: str, name: str) -> Profile:
    """The profile of a file by name, or its only one."""
    found = read_profiles(path)
    if name in found:
        return found[name]
    if name or len(found) > 1:
        raise OptionError(
            f"`{path}` has no profile `{name}`" if name else f"`{path}` has several profiles",
            expected=", ".join(f"{path}#{key}" for key in found),
        )
    return next(iter(found.values()))


def _read_profile(path: str, name: str, table: Any) -> Profile:
    if not isinstance(table, Mapping):
        raise OptionError(f"profile `{name}` of `{path}` is not a table")
    unknown = set(table) - set(_KEYS)
    if unknown:
        raise OptionError(
            f"profile `{name}` of `{path}` has an unknown key",
            got=f"`{sorted(unknown)[0]}`",
            expected=", ".join(_KEYS),
        )
    lists = [table.get(key, []) for key in ("without", "also")]
    for value in lists:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise OptionError(f"profile `{name}` of `{path}` needs lists of pass names", got=value)
    without, also = map(tuple, lists)
    return Profile(name, without, also, table.get("stages", "fused"), table.get("precision"))
