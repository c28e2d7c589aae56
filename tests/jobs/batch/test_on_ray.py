"""The same runs on a real Ray of this machine; skipped where it is not installed."""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest

from samgraph.errors import EngineError
from samgraph.jobs.batch.folder import FAILURES
from samgraph.jobs.batch.on_ray import check_reachable
from samgraph.jobs.batch.scheduler import CRASH
from tests.jobs.batch.test_local import file_names, killed_and_finished

has_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is missing: pip install ray"
)


@has_ray
@pytest.mark.ray
@pytest.mark.timeout(600)
def test_a_killed_driver_loses_nothing_and_an_actor_that_is_killed_is_replaced(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"

    names = killed_and_finished(tmp_path / "in", out, 1, "ray")

    assert file_names(out) == Counter(names)
    (failed,) = map(json.loads, (out / FAILURES).read_text().splitlines())
    assert (failed["path"], failed["reason"], failed["attempts"]) == ("kill.png", CRASH, 2)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("photos", "`photos` is no address of Ray"),
        ("127.0.0.1:9", "cannot be reached at `127.0.0.1:9`"),
        ("ray://127.0.0.1:9", "cannot be reached"),
        ("127.0.0.1:99999", "cannot be reached"),
    ],
)
def test_an_address_without_ray_is_refused_at_once(address: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        check_reachable(address)
