"""Options of any kind: a value that makes no sense is one clear error, wherever it is given."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from samgraph.errors import OptionError, SamgraphError
from samgraph.models.loading import load_model
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.image.encoded import EncodedImage, encode_image
from samgraph.predict.image.result import CleanOptions, Result
from samgraph.predict.video.options import TrackOptions, VideoOptions
from samgraph.predict.video.sessions import resume
from samgraph.predict.video.video import Video, open_video
from samgraph.runtime import CompileOptions
from samgraph.untrusted import arguments
from tests.golden import scenes
from tests.predict.models import tiny_model

ODD: tuple[Any, ...] = (
    "yes", "", b"x", -1, 0.5, float("nan"), float("inf"), 10**400, -(10**400), 1j, [],
    [True], {}, (1, 2), np.array([1, 2]), np.array([True, False]), np.datetime64("2020"), object(),
    Ellipsis, np.array("a"), np.array([None]),
)  # fmt: skip


Use = Callable[[Any], object]


@cache
def image() -> EncodedImage:
    return encode_image(tiny_model(), scenes.frame(0))


@cache
def result() -> Result:
    return image().predict(points=[(40, 50)])


@cache
def video() -> Video:
    video = open_video(tiny_model(), scenes.frames(2))
    video.add(frame=0, object=1, points=[(40, 50)])
    return video


def each(build: Callable[..., object], names: Iterable[str], what: str) -> dict[str, Use]:
    """A call for each option, with the value as that option alone."""
    return {f"{what} {name}": partial(_with_option, build, name) for name in names}


def _with_option(build: Callable[..., object], name: str, odd: object) -> object:
    return build(**{name: odd})


def names_of(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]


def track(**options: Any) -> None:
    list(video().track(**options))


CALLS: dict[str, Use] = {
    **each(EverythingOptions, names_of(EverythingOptions), "everything"),
    **each(CleanOptions, names_of(CleanOptions), "clean"),
    **each(VideoOptions, names_of(VideoOptions), "video"),
    **each(TrackOptions, names_of(TrackOptions), "stream"),
    **each(track, ("start", "end", "reverse", "both", "logits", "images"), "track"),
    **each(CompileOptions, ("engine", "precision", "threads", "profile"), "compile"),
    "multimask": lambda odd: image().predict(points=[(40, 50)], multimask=odd),
    "threshold": lambda odd: image().predict(points=[(40, 50)], threshold=odd),
    "name": lambda odd: encode_image(tiny_model(), scenes.frame(0), name=odd),
    "max_pixels": lambda odd: encode_image(tiny_model(), scenes.frame(0), max_pixels=odd),
    "embedding": lambda odd: encode_image(tiny_model(), scenes.frame(0), embedding=odd),
    "replace": lambda odd: video().add(frame=0, object=1, points=[(40, 50)], replace=odd),
    "object": lambda odd: video().clear(object=odd),
    "fill_holes": lambda odd: result().fill_holes(odd),
    "drop_specks": lambda odd: result().drop_specks(odd),
    "smooth": lambda odd: result().smooth(odd),
    "format": lambda odd: result().save("nowhere/a.png", odd),
    "session": lambda odd: resume(tiny_model(), odd),
    "device": lambda odd: load_model({}, device=odd),
    "config": lambda odd: load_model({}, config=odd),
}


@pytest.mark.parametrize("use", CALLS)
def test_no_odd_value_leaks_an_error_of_python(use: str) -> None:
    for odd in ODD:
        with suppress(SamgraphError):
            CALLS[use](odd)


FLAGS = ("everything use_m2m", "everything multimask", "video overlaps", "track reverse")


@pytest.mark.parametrize("use", [*FLAGS, "multimask", "replace"])
@pytest.mark.parametrize("odd", ["yes", None, 0.5, 2, np.array([True, False]), []])
def test_what_is_neither_true_nor_false_is_refused(use: str, odd: object) -> None:
    with pytest.raises(OptionError, match="true or false"):
        CALLS[use](odd)


def test_numbers_of_numpy_are_taken_and_become_python_s() -> None:
    given: dict[str, Any] = {"overlaps": np.False_, "fill_holes": np.int64(3)}
    given |= {"mask_threshold": np.float32(0.5), "cache_mb": np.int32(8)}

    options = VideoOptions(**given)

    assert (options.overlaps, options.fill_holes, options.mask_threshold) == (False, 3, 0.5)
    json.dumps([options.overlaps, options.fill_holes, options.mask_threshold, options.cache_mb])
    assert arguments.flag("x", np.int64(1)) is True
    assert arguments.flag("x", 0) is False


def test_layers_of_crops_are_refused_before_their_crops_are_counted() -> None:
    with pytest.raises(OptionError, match="too many"):
        EverythingOptions(crop_n_layers=10**12)
