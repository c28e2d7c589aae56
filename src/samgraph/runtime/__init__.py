"""The runtime: options and profiles, device choice, sessions, compiled graphs on disk."""

from samgraph.runtime.approximations import APPROXIMATIONS, Approximation
from samgraph.runtime.cache import GraphCache, default_cache_dir
from samgraph.runtime.dispatch import Dispatch, dispatch
from samgraph.runtime.options import CompileOptions, core_count
from samgraph.runtime.profiles import PROFILES, Profile, find_profile, read_profiles
from samgraph.runtime.session import CompiledGraph, Session
from samgraph.runtime.split import SplitGraph

__all__ = [
    "APPROXIMATIONS",
    "PROFILES",
    "Approximation",
    "CompileOptions",
    "CompiledGraph",
    "Dispatch",
    "GraphCache",
    "Profile",
    "Session",
    "SplitGraph",
    "core_count",
    "default_cache_dir",
    "dispatch",
    "find_profile",
    "read_profiles",
]
