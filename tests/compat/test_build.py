"""Models as the builders give them: by which names, with which methods, under which name."""

import importlib
import pickle
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import samgraph
from samgraph import compat
from samgraph.checkpoint.names import BY_NAME, RELEASES
from samgraph.compat.build_sam import HF_MODEL_ID_TO_FILENAMES, config_named
from samgraph.compat.modeling.sam2_base import SAM2Base
from samgraph.errors import CheckpointError, EngineError, OptionError
from tests.compat.sessions import predictor_for
from tests.golden import scenes
from tests.predict.models import small_model, tiny_model
from tests.predict.pictures import SEED, picture

NANO = "samgraph-nano"
FILE = "configs/sam2.1/sam2.1_hiera_t.yaml"


@pytest.mark.parametrize("given", [(NANO,), (NANO, NANO), (FILE, NANO), ("nano",)])
def test_the_built_in_model_is_known_to_every_builder(given: tuple[Any, ...]) -> None:
    assert compat.build_sam2(*given).config.name == NANO
    assert compat.build_sam2_video_predictor(*given).image_size == 512


def test_the_built_in_model_is_a_repository() -> None:
    assert compat.build_sam2_hf(NANO, device="cpu").image_size == 512
    assert compat.build_sam2_video_predictor_hf(NANO).image_size == 512
    assert compat.SAM2ImagePredictor.from_pretrained(NANO, mask_threshold=1.0).mask_threshold == 1.0
    assert type(compat.SAM2VideoPredictor.from_pretrained(NANO)) is compat.SAM2VideoPredictor
    assert type(compat.SAM2VideoPredictorVOS.from_pretrained(NANO)) is compat.SAM2VideoPredictorVOS
    made = compat.SAM2AutomaticMaskGenerator.from_pretrained(NANO, points_per_side=3)
    assert made.point_grids[0].shape == (9, 2)
    with pytest.raises(CheckpointError, match="or `samgraph-nano`"):
        compat.build_sam2(FILE)


def test_a_loaded_model_can_be_handed_over() -> None:
    loaded = samgraph.load(device="cpu")

    for kind in (compat.SAM2VideoPredictor, compat.SAM2VideoPredictorVOS):
        assert kind(loaded).core is loaded.core
    assert compat.SAM2ImagePredictor(loaded).core is loaded.core


def test_optimised_predictors_have_their_class() -> None:
    made = compat.build_sam2_video_predictor(NANO, vos_optimized=True)

    assert type(made) is compat.SAM2VideoPredictorVOS


def test_models_have_the_methods_of_modules() -> None:
    model = SAM2Base(tiny_model())

    assert model.eval().train().half().bfloat16().float().requires_grad_(False) is model
    assert model.to("cpu").cpu() is model
    assert model.to(dtype=np.float16) is model
    assert str(model.device) == "cpu"
    assert sum(p.numel() for p in model.parameters()) == sum(
        w.size for w in model.core.checkpoint().values()
    )
    assert next(model.parameters()).device == model.device
    assert list(model.state_dict()) == list(model.core.checkpoint())
    assert not model.training


def test_weights_can_be_replaced() -> None:
    model = SAM2Base(small_model(SEED))
    predictor = compat.SAM2ImagePredictor(model)
    predictor.set_image(picture())
    before = predictor.predict([[40, 50]], [1])[2]
    other = {name: np.array(w) for name, w in small_model(100).checkpoint().items()}

    missing, unused = model.load_state_dict(other | {"head": np.zeros(1)}, strict=False)

    predictor.set_image(picture())
    after = predictor.predict([[40, 50]], [1])[2]
    expected = compat.SAM2ImagePredictor(small_model(100))
    expected.set_image(picture())
    assert (missing, unused) == ([], ["head"])
    assert not np.array_equal(before, after)
    assert np.array_equal(after, expected.predict([[40, 50]], [1])[2])
    with pytest.raises(CheckpointError, match="those of another model"):
        model.load_state_dict({"head": np.zeros(1)})


def test_a_device_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samgraph.engines.devices._cuda_devices", lambda: 0)
    model = SAM2Base(tiny_model())

    for device in ("cuda", "cuda:0"):
        with pytest.raises(EngineError):
            model.to(device)
    with pytest.raises(EngineError):
        model.cuda(0)
    with pytest.raises(EngineError, match="no Apple GPU"):
        model.to("mps") if sys.platform != "darwin" else _not_here()
    with pytest.raises(OptionError, match="no device `tpu`"):
        compat.build_sam2(NANO, device="tpu")


def _not_here() -> None:
    raise EngineError("there is no Apple GPU")


def test_options_of_a_predictor_can_be_changed() -> None:
    predictor = predictor_for(tiny_model())
    state = predictor.init_state(scenes.frames(2))
    predictor.add_new_points_or_box(state, 0, 1, box=(17, 27, 63, 73))
    _, _, apart = predictor.add_new_points_or_box(state, 0, 2, box=(17, 27, 63, 73))
    assert (predictor.fill_hole_area, predictor.non_overlap_masks) == (0, False)

    predictor.fill_hole_area, predictor.non_overlap_masks = 4, True
    _, _, masks = predictor.add_new_points_or_box(state, 0, 2, box=(17, 27, 63, 73))

    assert ((apart > 0).sum(dim=0) > 1).any()
    assert not ((masks > 0).sum(dim=0) > 1).any()
    assert predictor.fill_hole_area == 4


def test_overlaps_are_resolved_as_in_the_reference() -> None:
    masks = np.random.default_rng(0).standard_normal((3, 1, 8, 9)).astype(np.float32)
    predictor = SAM2Base(tiny_model())

    found = predictor._apply_non_overlapping_constraints(masks)

    winner = masks.argmax(axis=0)[None] == np.arange(3).reshape(3, 1, 1, 1)
    assert np.array_equal(found[winner], masks[winner])
    assert (found[~winner] <= -10).all()
    assert np.array_equal(predictor._apply_non_overlapping_constraints(masks[:1]), masks[:1])


@pytest.fixture
def no_sam2(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "sam2"]:
        monkeypatch.delitem(sys.modules, name)


def test_the_modules_are_installed_under_the_reference_s_name(no_sam2: None) -> None:
    compat.install()
    compat.install()
    try:
        assert importlib.import_module("sam2.build_sam").build_sam2 is compat.build_sam2
        assert importlib.import_module("sam2.sam2_video_predictor").SAM2VideoPredictor
        assert importlib.import_module("sam2.utils.amg").rle_to_mask
        assert importlib.import_module("sam2.modeling.sam2_base").SAM2Base is SAM2Base
    finally:
        compat.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "sam2"]


def test_another_sam2_is_not_replaced(no_sam2: None, monkeypatch: pytest.MonkeyPatch) -> None:
    other: Any = ModuleType("sam2")
    monkeypatch.setitem(sys.modules, "sam2", other)

    with pytest.raises(OptionError, match="another `sam2` is imported already"):
        compat.install()

    compat.uninstall()
    assert sys.modules["sam2"] is other


def test_models_and_predictors_are_pickled_as_what_they_are() -> None:
    weights = small_model(SEED)
    predictor = predictor_for(weights, "non_overlap_masks=true", "max_cond_frames_in_attn=2")
    model = SAM2Base(weights, falls_back=False)

    again = pickle.loads(pickle.dumps(predictor))
    image = pickle.loads(pickle.dumps(compat.SAM2ImagePredictor(model)))

    assert type(again) is compat.SAM2VideoPredictor
    assert (again.settings, again._policy) == (predictor.settings, predictor._policy)
    assert type(image.model) is SAM2Base
    assert not image.model.falls_back
    masks = []
    for one in (predictor, again):
        state = one.init_state(scenes.frames(2))
        one.add_new_points_or_box(state, 0, 1, box=(17, 27, 63, 73))
        masks.append([logits for _, _, logits in one.propagate_in_video(state)])
    assert all(np.array_equal(*pair) for pair in zip(*masks, strict=True))


def test_what_is_not_here_says_why() -> None:
    model = SAM2Base(tiny_model())

    assert not hasattr(model, "image_encoder")
    with pytest.raises(AttributeError, match="`image_encoder` here: it is part of a compiled"):
        model.image_encoder  # type: ignore[attr-defined]  # noqa: B018  # reading it is the test
    with pytest.raises(AttributeError, match=r"`SAM2Base` has no `nothing`$"):
        model.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(OptionError, match=r"takes a model(.|\n)*str(.|\n)*from_pretrained"):
        compat.SAM2ImagePredictor("facebook/sam2.1-hiera-tiny")
    with pytest.raises(OptionError, match=r"no option `thread`(.|\n)*did you mean `threads`"):
        compat.build_sam2(NANO, thread=1)


def test_repositories_are_those_of_the_released_models() -> None:
    files = {release.file for release in RELEASES}

    assert {file for _, file in HF_MODEL_ID_TO_FILENAMES.values()} == files
    for repository, (config, file) in HF_MODEL_ID_TO_FILENAMES.items():
        assert config_named(config).name == config_named(repository).name
        assert BY_NAME[config_named(config).name].file == file
