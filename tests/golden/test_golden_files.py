"""The golden files themselves: they load, their inputs can be made, and comparing finds faults."""

import numpy as np
import pytest

from tests import weights
from tests.golden import scenes
from tests.golden.reading import HERE, golden

FILES = sorted(path.stem for path in HERE.glob("*.npz"))


@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_is_small_and_its_inputs_can_be_made(name: str) -> None:
    file = golden(name)

    inputs = [file.input(key) for key in file.names("in_")]

    assert (HERE / f"{name}.npz").stat().st_size < 1_000_000
    assert all(array.dtype == np.float32 for array in inputs)
    assert file.weights_seed in weights.OBJECT_SCORE_BIAS


@pytest.mark.parametrize("name", FILES)
def test_a_stored_array_is_what_its_index_says(name: str) -> None:
    file = golden(name)

    for key in file.names():
        entry = file.index[key]
        if "recipe" in entry:
            continue
        if "packbits_axis" in entry:
            assert file.bits(key).sum() == entry["true_count"]
        elif entry["step"] == 1:
            assert file.compare(key, file.stored(key)) == 0
        else:
            whole = int(np.prod(entry["shape"]))
            assert file.stored(key).size == -(-whole // entry["step"])
            assert np.abs(file.stored(key)).max() <= np.float32(entry["absmax"])


def test_comparing_sees_a_fault_between_the_stored_values() -> None:
    file = golden("components_test")
    name = "enc_patch_embed"
    step = file.index[name]["step"]
    faulty = np.zeros(file.shape(name), np.float32)
    faulty.reshape(-1)[::step] = file.stored(name)

    assert step > 1
    assert file.compare(name, faulty) > 0.01


def test_comparing_refuses_another_shape() -> None:
    file = golden("components_test")

    with pytest.raises(ValueError, match="has shape"):
        file.compare("pe_point1_sparse", np.zeros((1, 3, 256), np.float32))


def test_weights_are_the_same_everywhere() -> None:
    tensor = weights.tensor("some.layer.weight", (3, 4), 7)

    expected = [0.19501961767673492, 0.19713392853736877, 0.19947290420532227, 0.03203195333480835]
    np.testing.assert_array_equal(tensor[0], np.array(expected, np.float32))
    assert weights.tensor("some.norm.weight", (1000,), 7).mean() == pytest.approx(1, abs=0.02)
    assert weights.tensor("some.norm.weight", (1000,), 8)[0] != tensor.reshape(-1)[0]


def test_the_scene_is_the_same_everywhere() -> None:
    frames = np.stack(scenes.frames())

    assert frames.shape == (scenes.FRAMES, scenes.HEIGHT, scenes.WIDTH, 3)
    assert int(frames.astype(np.int64).sum()) == 68796796
