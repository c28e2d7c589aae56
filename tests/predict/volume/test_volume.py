"""Volumes with a model whose decisions can be followed: it sees connected regions of a grey."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samgraph import VolumeResult
from samgraph.errors import ImageError, OptionError, OutputError, PromptError
from samgraph.models.loading import load_model
from samgraph.predict.model import Model
from samgraph.predict.volume.volume import Volume
from samgraph.runtime import CompileOptions
from tests.models.sisters import SISTERS, small_sister
from tests.predict.colour_model import SIDE, ColourModel
from tests.predict.models import small_model

SHAPE = (12, SIDE, SIDE)  # slices of the size that the model sees


def balls(*, gap: bool = False) -> Any:
    """Two things in a volume, uint8: a large one of 200, and one of 90 that is small.

    With a `gap`, the large one is cut by two empty slices.
    """
    z, y, x = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    found = np.zeros(SHAPE, np.uint8)
    large = ((z - 5) / 4.5) ** 2 + ((y - 20) / 15) ** 2 + ((x - 20) / 14) ** 2 <= 1
    small = ((z - 8) / 3.5) ** 2 + ((y - 36) / 9) ** 2 + ((x - 50) / 10) ** 2 <= 1
    found[large], found[small] = 200, 90
    if gap:
        found[3:5] = np.where(found[3:5] == 200, 0, found[3:5])
    return found


def opened(voxels: Any = None, **options: Any) -> Volume:
    return Model(ColourModel()).volume(balls() if voxels is None else voxels, **options)


def test_an_object_is_followed_from_its_key_slice_to_both_ends() -> None:
    volume = opened()
    shown = volume.add(slice=5, box=(4, 4, 36, 36))

    result = volume.segment()

    assert isinstance(result, VolumeResult)
    assert np.array_equal(shown.masks[0], balls()[5] == 200)
    assert np.array_equal(result.mask(), balls() == 200)
    assert result.labels.dtype == np.uint8
    assert np.array_equal(result.labels, balls() == 200)
    assert result.voxels == {1: int((balls() == 200).sum())}
    assert result.volumes is None
    assert result.slices() == (1, 9)
    assert (result.scores[1][1:10] > 0.5).all()


@given(
    st.permutations(range(3)),
    st.lists(st.sampled_from([1, -1]), min_size=3, max_size=3),
    st.integers(2, 8),
)
def test_the_axis_makes_no_difference(order: list[int], signs: list[int], key: int) -> None:
    """The volume turned and flipped, and the box with it: the same voxels are found."""

    def turned(voxels: Any) -> Any:
        return voxels.transpose(order)[tuple(slice(None, None, sign) for sign in signs)]

    axis = order.index(0)
    is_flipped = signs[axis] < 0
    index = SHAPE[0] - 1 - key if is_flipped else key
    volume = opened(turned(balls()), axis=axis)
    rows, columns = np.nonzero(np.take(turned(balls() == 200), index, axis))
    box = (columns.min() - 2, rows.min() - 2, columns.max() + 3, rows.max() + 3)

    volume.add(slice=index, box=box)
    result = volume.segment()

    assert volume.shape == turned(balls()).shape
    assert len(volume) == SHAPE[0]
    assert np.array_equal(result.mask(), turned(balls() == 200))


def test_objects_prompted_on_different_slices_do_not_disturb_each_other() -> None:
    volume = opened()
    volume.add(slice=8, object="small", box=(38, 25, 62, 46))
    volume.add(slice=3, object=5, points=[(20, 20)])
    seen: list[tuple[int, int]] = []

    result = volume.segment(progress=lambda done, total: seen.append((done, total)))

    assert result.objects == ("small", 5)
    assert result.numbers == {"small": 1, 5: 5}
    assert np.array_equal(result.labels, np.select([balls() == 90, balls() == 200], [1, 5]))
    assert seen[-1] == (26, 26)
    alone = opened()
    alone.add(slice=3, object=5, points=[(20, 20)])
    assert np.array_equal(alone.segment().mask(5), result.mask(5))


def test_the_largest_component_is_kept_unless_all_are_wanted() -> None:
    volume = opened(balls(gap=True))
    volume.add(slice=7, box=(4, 4, 36, 36))

    largest, every = volume.segment(), volume.segment(largest=False)

    assert every.slices() == (1, 9)
    assert largest.slices() == (5, 9)
    assert np.array_equal(every.mask(), balls(gap=True) == 200)


def test_only_some_slices_are_looked_at() -> None:
    volume = opened()
    volume.add(slice=5, box=(4, 4, 36, 36))

    assert volume.segment(start=4, end=6).slices() == (4, 6)
    assert volume.segment(start=5, end=5).slices() == (5, 5)
    with pytest.raises(PromptError, match="object `1` is prompted on slice 5"):
        volume.segment(start=6)


def test_segmenting_again_gives_the_same_and_prompts_can_be_taken_back() -> None:
    volume = opened()
    volume.add(slice=5, box=(4, 4, 36, 36))
    first = volume.segment()
    volume.add(slice=8, object=2, box=(38, 25, 62, 46))

    assert np.array_equal(volume.segment().mask(1), first.mask())
    volume.clear(object=1)
    assert volume.objects == (2,)
    volume.reset()
    with pytest.raises(PromptError, match="nothing to segment"):
        volume.segment()


def test_overlapping_objects_are_whole_and_the_last_has_the_label() -> None:
    volume = opened()
    for name in (1, 2):
        volume.add(slice=5, object=name, box=(4, 4, 36, 36))

    result = volume.segment()

    assert np.array_equal(result.mask(1), result.mask(2))
    assert set(np.unique(result.labels)) == {0, 2}
    with pytest.raises(PromptError, match="say which object"):
        result.mask()
    with pytest.raises(PromptError, match="no object `9`"):
        result.mask(9)


def test_ids_that_are_no_labels_get_free_numbers() -> None:
    volume = opened()
    for name in (0, -4, 70000, 2, "a"):
        volume.add(slice=5, object=name, box=(4, 4, 36, 36))

    assert volume.segment(start=5, end=5).numbers == {0: 1, -4: 3, 70000: 4, 2: 2, "a": 5}


@pytest.mark.parametrize(
    ("given_prompt", "message"),
    [
        ({"slice": 12, "box": (1, 1, 5, 5)}, "there is no slice 12"),
        ({"slice": -1, "box": (1, 1, 5, 5)}, "there is no slice -1"),
        ({"slice": 1.5, "box": (1, 1, 5, 5)}, "named by its number"),
        ({"slice": 5}, "needs points, a box or a mask"),
        ({"slice": 5, "box": (9, 9, 4, 4)}, "box"),
        ({"slice": 5, "mask": np.ones((3, 3), bool)}, "another size"),
    ],
)
def test_prompts_that_make_no_sense_are_refused(given_prompt: Any, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        opened().add(**given_prompt)


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(OptionError, match="no option `windw`"):
        opened(windw="lung")
    with pytest.raises(OptionError, match="no window `kidney`"):
        opened(window="kidney")
    with pytest.raises(ImageError, match="at most 10"):
        opened(max_voxels=10)
    with pytest.raises(ImageError, match="only a folder has DICOM series"):
        opened(series="1")


def test_a_result_is_saved_as_an_array(tmp_path: Path) -> None:
    volume = opened()
    volume.add(slice=5, box=(4, 4, 36, 36))
    result = volume.segment()

    path = result.save(tmp_path / "mask.npy")

    assert np.array_equal(np.load(path), result.labels)
    with pytest.raises(OutputError, match="no suffix of a volume"):
        result.save(tmp_path / "mask.png")
    with pytest.raises(OutputError, match="make the folder first"):
        result.save(tmp_path / "none" / "mask.npy")


def test_each_direction_starts_with_the_prompts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in MedSAM 2's recipe: what was found on one side is not read on the other."""
    volume = opened()
    volume.add(slice=5, box=(4, 4, 36, 36))
    sessions: list[Any] = []
    make = volume._session

    def session(names: Any) -> Any:
        sessions.append(make(names))
        return sessions[-1]

    monkeypatch.setattr(volume, "_session", session)
    read = [
        (frame.index, set(sessions[-1].state(1).bank.tracked))
        for frame in volume._both_ways([1], 5, 0, 11)
    ]

    assert [index for index, _ in read] == [*range(5, 12), *range(5, -1, -1)]
    assert all(min(frames, default=5) >= 5 for _, frames in read[:7])
    assert all(max(frames, default=5) <= 5 for _, frames in read[7:])
    assert read[-1][1]


@pytest.mark.parametrize("name", ["small sam2", *SISTERS])
def test_every_family_segments_a_volume(name: str) -> None:
    model = Model(small_model(14)) if name == "small sam2" else small_sister(name)
    volume = model.volume(balls(), fill_holes=2)
    volume.add(slice=5, box=(4, 4, 36, 36))

    result = volume.segment(start=3, end=7)

    assert result.mask().shape == SHAPE
    assert not result.mask()[:3].any()


def test_medsam2_runs_a_volume() -> None:
    from samgraph.models.sam2.config import CONFIGS
    from tests.models.sam2.bench import known_weights

    weights = known_weights(CONFIGS["sam2.1-tiny"], 5)
    core = load_model(weights, config="medsam2", device="cpu", options=CompileOptions(cache=False))
    volume = Model(core).volume(balls()[4:7], window="auto")
    shown = volume.add(slice=1, box=(4, 4, 36, 36))

    result = volume.segment()

    assert core.preprocessing.size == 512
    assert np.isfinite(shown.scores).all()
    assert result.mask().shape == (3, SIDE, SIDE)
