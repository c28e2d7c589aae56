"""The model inside the package, loaded once; tests of its quality need its file."""

from functools import cache

import pytest

import samgraph


@cache
def _built_in() -> samgraph.Model:
    return samgraph.load(threads=2)


@pytest.fixture
def model() -> samgraph.Model:
    """The built-in model; only for tests marked `needs_built_in`."""
    return _built_in()
