"""Which masks are kept unless somebody says otherwise: each model has thresholds of its own."""

from dataclasses import replace
from typing import Any

from samgraph.models.loading import load_model
from samgraph.models.nano.config import NANO
from samgraph.models.sam2.config import CONFIGS
from samgraph.predict.everything.options import EverythingOptions, own_thresholds
from samgraph.predict.model import Model
from tests.models.sam2.bench import config_of, known_weights
from tests.predict.pictures import SEED, model, picture

FEW: dict[str, Any] = {"points_per_side": 3, "box_nms_thresh": 1.0, "progress": False}


def low(iou: float = 0.3, stability: float = 0.4) -> Model:
    """The model of `pictures`, with thresholds of its own."""
    config = config_of({"config": "test"})
    own = replace(config, everything_iou=iou, everything_stability=stability)
    return Model(load_model(known_weights(config, SEED), config=own))


def test_released_models_have_the_thresholds_of_the_reference() -> None:
    for config in CONFIGS.values():
        chosen = EverythingOptions().of_model(config)
        assert (chosen.pred_iou_thresh, chosen.stability_score_thresh) == (0.8, 0.95)
        assert own_thresholds(config) == {}
    assert EverythingOptions().least_iou == 0.8
    assert EverythingOptions().least_stability == 0.95


def test_the_built_in_model_has_its_own() -> None:
    chosen = EverythingOptions(pred_iou_thresh=0.9).of_model(NANO)

    assert chosen.pred_iou_thresh == 0.9
    assert chosen.stability_score_thresh == NANO.everything_stability < 0.95
    assert own_thresholds(NANO) == {
        "pred_iou_thresh": NANO.everything_iou,
        "stability_score_thresh": NANO.everything_stability,
    }


def test_a_model_keeps_what_its_own_thresholds_let_pass() -> None:
    found = low().everything(picture(), **FEW)
    same = model().everything(picture(), **FEW, pred_iou_thresh=0.3, stability_score_thresh=0.4)

    assert len(found) > 3
    assert [one.rle for one in found] == [one.rle for one in same]
    assert (found.options.pred_iou_thresh, found.options.stability_score_thresh) == (0.3, 0.4)
    assert len(model().everything(picture(), **FEW)) < len(found)


def test_what_is_given_wins() -> None:
    strict = low().everything(picture(), **FEW, pred_iou_thresh=0.8, stability_score_thresh=0.95)
    usual = model().everything(picture(), **FEW)

    assert [one.rle for one in strict] == [one.rle for one in usual]
    one_given = low().everything(picture(), **FEW, pred_iou_thresh=1.0)
    assert len(one_given) == 0
    assert one_given.options.stability_score_thresh == 0.4


def test_zero_is_a_threshold_and_not_a_default() -> None:
    chosen = EverythingOptions(pred_iou_thresh=0.0, stability_score_thresh=0.0).of_model(NANO)
    assert (chosen.least_iou, chosen.least_stability) == (0.0, 0.0)
