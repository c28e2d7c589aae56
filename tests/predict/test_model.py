"""The model explains itself: signatures, wrong options, copies for other processes."""

import copy
import inspect
import multiprocessing
import pickle
import pydoc
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samgraph
from samgraph.errors import CheckpointError, OptionError
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.model import Model, load
from samgraph.predict.video.options import TrackOptions, VideoOptions
from tests.predict.models import tiny_model
from tests.predict.pictures import picture

CLICK: dict[str, Any] = {"points": [(40, 50)]}


def test_everything_public_is_listed_and_there() -> None:
    listed = dir(samgraph)

    for name in samgraph.__all__:
        assert name in listed
        assert getattr(samgraph, name) is not None
    assert {name for name in listed if not name.startswith("_")} == {
        *(name for name in samgraph.__all__ if name != "__version__"),
        "errors",
    }
    with pytest.raises(AttributeError, match="has no `nothing`"):
        _ = samgraph.nothing


def test_a_misspelt_option_of_any_call_is_refused(tmp_path: Path) -> None:
    model: Any = Model(tiny_model())
    image, video, stream = model.image(picture()), model.video([picture()] * 2), model.stream()
    result = image.predict(**CLICK)
    calls: list[tuple[Callable[..., Any], str, str]] = [
        (image.predict, "point", "points"),
        (model.images([picture()]).predict, "box_", "box"),
        (result.save, "lable", "label"),
        (video.add, "point", "points"),
        (video.track, "progres", "progress"),
        (video.export, "opacty", "opacity"),
        (stream.add, "boxs", "box"),
        (stream.step, "boxs", "boxes"),
    ]

    for call, wrong, right in calls:
        with pytest.raises(OptionError, match=rf"no option `{wrong}`(.|\n)*did you mean `{right}`"):
            call(**{wrong: 1})
    video.add(frame=0, object="cup", **CLICK)
    assert repr(video).endswith("2 frames, 1 object>")
    assert repr(stream).endswith("0 objects>")


def test_help_shows_the_classes_and_every_option() -> None:
    text = pydoc.plain(pydoc.render_doc(samgraph))

    for word in ("video.export", "class Model", "class Video", "load(", "cache_mb"):
        assert word in text


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (Model.video, VideoOptions),
        (Model.stream, TrackOptions),
        (Model.everything, EverythingOptions),
    ],
)
def test_signatures_are_those_of_the_options(method: Callable[..., Any], kind: type) -> None:
    parameters = inspect.signature(method).parameters

    for field in fields(kind):
        assert field.default is not MISSING
        assert parameters[field.name].default == field.default, field.name
        assert f"{field.name}:" in (method.__doc__ or "") or method is Model.stream
    assert not any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def test_a_wrong_option_is_refused_with_one_that_is_near() -> None:
    model = Model(tiny_model())

    # mypy refuses them too: an ignore that it does not need is an error.
    with pytest.raises(OptionError, match=r"`Model\.video` has no option `cahce_mb`") as video:
        model.video([picture()], cahce_mb=3)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="no option `stirde`"):
        model.stream(stirde=2)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="no option `point_per_side`") as everything:
        model.everything(picture(), point_per_side=3)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="no option `nam`"):
        model.image(picture(), nam="x")  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="no option `batches`"):
        model.images([picture()], batches=3)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match="no option `devcie`"):
        load(devcie="cpu")  # type: ignore[call-arg]
    assert video.value.hint == "did you mean `cache_mb`?"
    assert "points_per_side" in str(everything.value.expected)


def test_options_by_name_reach_the_work() -> None:
    model = Model(tiny_model())

    assert model.video([picture()], cache_mb=3, stride=2).options.stride == 2
    assert model.stream(fill_holes=4).display.fill_holes == 4
    grid = [np.array([[0.25, 0.4]])]
    options = model.everything(picture(), point_grids=grid, pred_iou_thresh=0.0).options
    assert (options.points_per_side, options.pred_iou_thresh) == (None, 0.0)
    with pytest.raises(OptionError, match="either `options` or single"):
        model.everything(picture(), options=EverythingOptions(), multimask=False)


def test_a_model_of_tensors_takes_them_along() -> None:
    model = Model(tiny_model())

    again = pickle.loads(pickle.dumps(model))

    assert again.config == model.config
    expected = model.image(picture()).predict(**CLICK)
    assert np.array_equal(again.image(picture()).predict(**CLICK).masks, expected.masks)
    assert copy.deepcopy(model) is model
    assert copy.copy(model) is model


def test_a_model_of_a_file_reloads_it_unless_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Model(tiny_model()).save(tmp_path / "small.safetensors")
    monkeypatch.chdir(tmp_path)
    model = load("small.safetensors", threads=1)

    data = pickle.dumps(model)

    assert len(data) < 10_000
    monkeypatch.chdir("/")
    again = pickle.loads(data)
    assert again.core.session.options.threads == 1
    other = Model(tiny_model())
    weights = other.core.checkpoint()
    name = next(iter(weights))
    load(weights | {name: weights[name] + 1}, config=other.config).save(
        tmp_path / "small.safetensors"
    )
    with pytest.raises(CheckpointError, match="have changed since"):
        pickle.loads(data)


def count_masks(model: Model) -> int:
    return len(model.image(picture()).predict(**CLICK))


def test_a_model_works_in_a_worker_process(tmp_path: Path) -> None:
    Model(tiny_model()).save(tmp_path / "small.safetensors")
    model = load(tmp_path / "small.safetensors", threads=1)

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(count_masks, (model,)) == 3
