"""A server that the tests of one file share."""

from collections.abc import Iterator

import pytest

from tests.serve.serving import Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("sessions")) as found:
        yield found
