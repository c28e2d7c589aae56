"""`--max-memory-mb`: what is kept, and how many objects run at once."""

import pytest

from samgraph.errors import CapacityError
from samgraph.jobs.limits import Needs, limits_within
from samgraph.models.sam2.config import CONFIGS

FULL_HD = (1080, 1920)


def needs(objects: int = 1, size_hw: tuple[int, int] = FULL_HD, is_fp32: bool = False) -> Needs:
    return Needs(CONFIGS["sam2.1-tiny"], size_hw, objects, objects, is_fp32)


def held(limits: dict[str, float], given: Needs) -> float:
    """Megabytes that a run with these limits holds."""
    fixed = given.remembered + given.waiting + given.encoded
    chosen = limits["cache_frames"] * given.decoded + limits["objects_at_once"] * given.working
    return (fixed + chosen) / (1 << 20) + limits["cache_mb"]


@pytest.mark.parametrize("objects", [1, 4, 20])
@pytest.mark.parametrize("megabytes", [400.0, 700.0, 5000.0])
def test_what_is_held_is_within_the_limit(objects: int, megabytes: float) -> None:
    given = needs(objects)

    assert held(limits_within(megabytes, given), given) <= megabytes


def test_more_memory_runs_more_objects_at_once_and_keeps_more_frames() -> None:
    little, much = (limits_within(megabytes, needs(8)) for megabytes in (300.0, 5000.0))

    assert little["objects_at_once"] < much["objects_at_once"] == 4
    assert little["cache_frames"] < much["cache_frames"] == 64


def test_the_limit_in_the_hint_is_enough() -> None:
    for given in (needs(), needs(30), needs(3, (2160, 3840)), needs(2, is_fp32=True)):
        with pytest.raises(CapacityError, match="not fit in 8 MB") as caught:
            limits_within(8, given)
        named = float(str(caught.value.hint).split()[-1])
        assert limits_within(named, given)["objects_at_once"] == 1
        with pytest.raises(CapacityError):
            limits_within(named - 2, given)
