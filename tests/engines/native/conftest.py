"""The kernels that a test asks for by the name of their instructions."""

import pytest

from samgraph.engines.native import Kernels
from tests.engines.native.kernels import kernels_called


@pytest.fixture(scope="session")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """The kernels for one set of instructions."""
    return kernels_called(request.param)
