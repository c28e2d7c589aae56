import re

import pytest

from samgraph.checkpoint import RELEASES, find_release, normalise
from samgraph.errors import CheckpointError
from tests.checkpoint.tables import all_tables

SPELLINGS = {
    "sam2.1-tiny": ["tiny", "t", "TINY", " sam2.1_hiera_tiny.pt ", "sam2.1_hiera_t", "sam21-tiny"],
    "sam2.1-small": ["small", "s", "facebook/sam2.1-hiera-small", "sam-2.1-small", "hiera-small"],
    "sam2.1-base-plus": ["base-plus", "base_plus", "b+", "sam2.1_hiera_b+", "sam2.1-base_plus"],
    "sam2.1-large": ["large", "l", "sam2.1_hiera_large", "sam2-1-large"],
    "sam2-tiny": ["sam2_hiera_tiny.pt", "facebook/sam2-hiera-tiny", "sam2-t"],
    "sam2-base-plus": ["sam2_hiera_base_plus", "sam2-b+", "sam2-base", "SAM2-BasePlus"],
    "sam2-large": ["sam2-hiera-large", "sam2_hiera_l"],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_means_one_release(name: str) -> None:
    assert normalise(name) == name
    assert {normalise(spelling) for spelling in SPELLINGS[name]} == {name}


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(CheckpointError) as caught:
        normalise("sam2.1-tinny")

    assert str(caught.value).startswith("there is no released model called `sam2.1-tinny`")
    assert "hint: did you mean `sam2.1-tiny`?" in str(caught.value)
    with pytest.raises(CheckpointError, match="did you mean `edgetam`"):
        normalise("edge-tam")


@pytest.mark.parametrize(
    "name", ["", "sam2", "sam3-large", "tiny-plus", "sam2.1-huge", "weights/tiny"]
)
def test_what_is_not_a_release_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="there is no released model"):
        normalise(name)


def test_the_table_is_complete_and_consistent() -> None:
    assert len(RELEASES) == len({release.sha256 for release in RELEASES}) == 8
    for release in RELEASES:
        assert find_release(release.file) is release
        assert re.fullmatch("[0-9a-f]{64}", release.sha256)
        assert release.address.startswith("https://")
        assert release.address.endswith(f"/{release.file}")
        assert ("092824" in release.address) == release.name.startswith("sam2.1-")


def test_parameter_counts_are_those_of_the_tables() -> None:
    for name, shapes in all_tables().items():
        count = 0
        for shape in shapes.values():
            size = 1
            for side in shape:
                size *= side
            count += size
        assert find_release(name).parameters == count
