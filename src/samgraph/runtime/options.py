"""How a graph is compiled: engine, precision, threads, profile, cache."""

import os
from dataclasses import dataclass

from samgraph.engines import Precision, engine_names
from samgraph.errors import OptionError
from samgraph.passes.pipeline import PRECISIONS
from samgraph.runtime.approximations import Approximation, find_approximation
from samgraph.runtime.profiles import FUSED, Profile, ProfileLike, find_profile


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of `Session.compile`. The defaults suit the machine.

    `profile` is a `Profile`, its name, or the path of a TOML file. `precision` None means the
    profile's, and where it has none, fp32 on a CPU and bf16 on a GPU. `threads` None means every
    core this process may use. `approximation` is a name of `APPROXIMATIONS`; None is exact.
    `cache_dir` None means the user's cache folder; with `cache` False
    nothing is read from or written to disk.
    """

    engine: str | None = None
    precision: Precision | None = None
    threads: int | None = None
    profile: ProfileLike = FUSED
    cache_dir: str | os.PathLike[str] | None = None
    cache: bool = True
    approximation: str | None = None

    def __post_init__(self) -> None:
        for name, known in (("engine", engine_names()), ("precision", PRECISIONS)):
            asked = getattr(self, name)
            if asked is not None and (not isinstance(asked, str) or asked not in known):
                raise OptionError(f"there is no {name} `{asked}`", expected=", ".join(known))
        cores = core_count()
        wrong = isinstance(self.threads, bool) or not isinstance(self.threads, int | None)
        if wrong or (self.threads is not None and not 1 <= self.threads <= cores):
            raise OptionError(
                f"cannot use {self.threads} threads",
                expected=f"1 to {cores}, the cores this process may use",
            )
        object.__setattr__(self, "profile", find_profile(self.profile))
        if self.approximation is not None:
            find_approximation(self.approximation)

    @property
    def chosen_profile(self) -> Profile:
        """The resolved profile."""
        return find_profile(self.profile)

    @property
    def chosen_approximation(self) -> Approximation | None:
        """The resolved approximation; None is exact."""
        return None if self.approximation is None else find_approximation(self.approximation)

    @property
    def asked_precision(self) -> Precision | None:
        """The precision of the options or the profile; None: what the engine prefers there."""
        return self.precision or self.chosen_profile.precision

    @property
    def chosen_threads(self) -> int:
        """The resolved number of threads."""
        return self.threads if self.threads is not None else core_count()


def core_count() -> int:
    """The number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
