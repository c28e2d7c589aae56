"""The reference's video predictor by its own names: options, quirks, and how it is built."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from samgraph import compat
from samgraph.compat.build_sam import config_named
from samgraph.compat.video_settings import VideoSettings, video_settings
from samgraph.errors import CheckpointError, OptionError
from samgraph.models.sam2.config import CONFIGS
from tests.compat.sessions import predictor_for
from tests.golden import scenes
from tests.models.sam2.bench import config_of, known_weights
from tests.predict.models import tiny_model

FRAMES = 5
BOX = (17, 27, 63, 73)


@pytest.fixture
def predictor() -> compat.SAM2VideoPredictor:
    return predictor_for(tiny_model(), "memory_precision=fp32")


@pytest.fixture
def state(predictor: compat.SAM2VideoPredictor) -> dict[str, Any]:
    return predictor.init_state(scenes.frames(FRAMES))


def tracked(
    predictor: compat.SAM2VideoPredictor, state: dict[str, Any], **given: Any
) -> dict[int, npt.NDArray[np.float32]]:
    return {frame: masks for frame, _, masks in predictor.propagate_in_video(state, **given)}


def test_n_frames_to_track_are_one_more(predictor: Any, state: Any) -> None:
    predictor.add_new_points_or_box(state, 0, 1, box=BOX)

    assert list(tracked(predictor, state, max_frame_num_to_track=2)) == [0, 1, 2]
    assert list(tracked(predictor, state, start_frame_idx=4, reverse=True)) == [4, 3, 2, 1, 0]
    assert list(tracked(predictor, state, start_frame_idx=0, reverse=True)) == []


def test_a_correction_is_lost_when_it_is_tracked_over(predictor: Any, state: Any) -> None:
    predictor.add_new_points_or_box(state, 0, 1, box=BOX)
    first = tracked(predictor, state)

    _, _, corrected = predictor.add_new_points_or_box(state, 3, 1, points=[(60, 50)], labels=[1])
    again = tracked(predictor, state)

    assert not np.array_equal(corrected, first[3])
    for frame in first:
        np.testing.assert_array_equal(again[frame], first[frame])


def test_the_list_of_ids_is_the_sessions_own(predictor: Any, state: Any) -> None:
    predictor.add_new_points_or_box(state, 0, "a", box=BOX)
    _, ids, masks = next(predictor.propagate_in_video(state))

    predictor.reset_state(state)

    assert masks.shape == (1, 1, scenes.HEIGHT, scenes.WIDTH)
    assert ids == []
    with pytest.raises(RuntimeError, match="No input points"):
        next(predictor.propagate_in_video(state))


def test_removing_the_last_object_is_a_reset(predictor: Any, state: Any) -> None:
    predictor.add_new_points_or_box(state, 0, 1, box=BOX)
    predictor.add_new_points(state, 0, 2, points=[(118, 84)], labels=[1])

    assert predictor.remove_object(state, 7) == ([1, 2], [])
    ids, updated = predictor.remove_object(state, 1)
    assert ids == [2]
    assert [frame for frame, _ in updated] == [0]
    assert state["obj_id_to_idx"] == {2: 0}
    assert predictor.remove_object(state, 2) == ([], [])
    assert state["output_dict_per_obj"] == {}


def test_prompts_that_are_taken_back_leave_a_tracked_frame(predictor: Any, state: Any) -> None:
    predictor.add_new_points_or_box(state, 0, 1, box=BOX)
    predictor.add_new_points_or_box(state, 2, 1, box=BOX)
    tracked(predictor, state)

    frame, ids, masks = predictor.clear_all_prompts_in_frame(state, 2, 1)

    assert (frame, ids, masks.shape[0]) == (2, [1], 1)
    stores = state["output_dict_per_obj"][0]
    assert list(stores["cond_frame_outputs"]) == [0]
    assert 2 in stores["non_cond_frame_outputs"]


def test_the_state_has_the_layout_of_the_reference(predictor: Any, state: Any) -> None:
    predictor.add_new_points_or_box(state, 0, 1, box=BOX)
    tracked(predictor, state, max_frame_num_to_track=1)

    config = tiny_model().config
    out = state["output_dict_per_obj"][0]["non_cond_frame_outputs"][1]
    assert state["num_frames"] == len(state["images"]) == FRAMES
    assert (state["video_height"], state["video_width"]) == (scenes.HEIGHT, scenes.WIDTH)
    assert out["maskmem_features"].shape == (1, 64, config.grid, config.grid)
    assert out["maskmem_pos_enc"][0].shape == out["maskmem_features"].shape
    assert out["pred_masks"].shape == (1, 1, config.mask_size, config.mask_size)
    assert out["obj_ptr"].shape == (1, config.channels)
    assert out["object_score_logits"].shape == (1, 1)


def test_a_mask_has_two_dimensions(predictor: Any, state: Any) -> None:
    with pytest.raises(ValueError, match="two dimensions"):
        predictor.add_new_mask(state, 0, 1, np.zeros((1, 5, 5)))


def test_a_predictor_is_built_from_weights() -> None:
    config = config_of({"config": "test"}).at_size(128)
    weights = known_weights(config_of({"config": "test"}), 100)

    built = compat.build_sam2_video_predictor(
        config, weights, hydra_overrides_extra=["++model.fill_hole_area=0"], vos_optimized=True
    )

    assert built.settings.fill_hole_area == 0
    assert built.settings.binarize_mask_from_pts_for_mem_enc
    assert built.image_size == 128
    with pytest.raises(CheckpointError, match="needs weights"):
        compat.build_sam2_video_predictor("configs/sam2.1/sam2.1_hiera_t.yaml")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("configs/sam2.1/sam2.1_hiera_t.yaml", "sam2.1-tiny"),
        ("configs/sam2/sam2_hiera_b+.yaml", "sam2-base-plus"),
        ("sam2.1_hiera_l.yaml", "sam2.1-large"),
        ("facebook/sam2-hiera-small", "sam2-small"),
        ("sam2.1-tiny", "sam2.1-tiny"),
    ],
)
def test_config_files_of_the_reference_are_known_by_name(name: str, expected: str) -> None:
    assert config_named(name) == CONFIGS[expected]


def test_an_unknown_config_file_is_refused() -> None:
    with pytest.raises(OptionError, match="no config"):
        config_named("configs/sam3.yaml")


def test_settings_are_told_as_overrides() -> None:
    settings = video_settings(
        [
            "++model.non_overlap_masks=true",
            "model.max_cond_frames_in_attn=4",
            "++model.memory_precision=fp32",
            "++model.sam_mask_decoder_extra_args.dynamic_multimask_via_stability=false",
            "++model.sam_mask_decoder_extra_args.dynamic_multimask_stability_thresh=0.98",
            "++model.compile_image_encoder=True",
        ],
        apply_postprocessing=True,
    )

    assert settings == VideoSettings(
        fill_hole_area=8,
        non_overlap_masks=True,
        max_cond_frames_in_attn=4,
        binarize_mask_from_pts_for_mem_enc=True,
        memory_precision="fp32",
    )
    assert video_settings([], apply_postprocessing=False) == VideoSettings()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("++model.soft_no_obj_ptr=true", "no option `soft_no_obj_ptr`"),
        ("++model.fill_hole_area=many", "cannot be `many`"),
        ("++model.non_overlap_masks=1", "cannot be `1`"),
        ("++model.clear_non_cond_mem_around_input=true", "is fixed"),
        ("fill_hole_area=3", "not an override"),
    ],
)
def test_overrides_that_do_not_exist_are_named(override: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        video_settings([override], apply_postprocessing=True)


def test_names_that_do_not_exist_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no `SAM4`"):
        _ = compat.SAM4
