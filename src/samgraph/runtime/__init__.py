"""The runtime: options and profiles, device choice, sessions, compiled graphs on disk."""

from samgraph.runtime.cache import GraphCache, default_cache_dir
from samgraph.runtime.options import PROFILES, CompileOptions, Profile, core_count, read_profiles
from samgraph.runtime.session import CompiledGraph, Session
from samgraph.runtime.split import SplitGraph

__all__ = [
    "PROFILES",
    "CompileOptions",
    "CompiledGraph",
    "GraphCache",
    "Profile",
    "Session",
    "SplitGraph",
    "core_count",
    "default_cache_dir",
    "read_profiles",
]
