"""`samgraph.scale`: batches of columns, as Ray Data and Daft hand them over."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph import scale
from samgraph.errors import ImageError, OptionError
from samgraph.predict.everything.options import EverythingOptions
from samgraph.predict.model import Model
from samgraph.scale import MASK_COLUMNS, SegmentBatch, decode_masks
from tests.golden import scenes
from tests.predict.models import small_model

BOX = [17.0, 27.0, 63.0, 73.0]
PICTURE = scenes.frame(0)
HEIGHT, WIDTH = PICTURE.shape[:2]


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """What `SegmentBatch` loads."""
    made = Model(small_model(14))
    monkeypatch.setattr(scale, "load", lambda source, **_: made)
    return made


def objects(*values: Any) -> Any:
    column = np.empty(len(values), object)
    for index, value in enumerate(values):
        column[index] = value
    return column


def test_arrays_bytes_and_paths_have_the_same_masks(tmp_path: Path, model: Model) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(PICTURE).save(path)
    segment = SegmentBatch(batch=1)
    columns = {
        "image": np.stack([PICTURE]), "bytes": objects(path.read_bytes()),
        "path": np.array([str(path)]),
    }  # fmt: skip

    made = [segment({name: column, "box": np.array([BOX])}) for name, column in columns.items()]

    expected = model.image(PICTURE).predict(box=BOX, multimask=False).masks
    for name, rows in zip(columns, made, strict=True):
        assert (decode_masks(rows["rle"][0], HEIGHT, WIDTH) == expected).all()
        assert set(rows) == {*MASK_COLUMNS, "box", *(["path"] if name == "path" else [])}
        assert (rows["height"][0], rows["width"][0], rows["error"][0]) == (HEIGHT, WIDTH, "")


def test_nested_prompts_of_tables_are_understood() -> None:
    clicks = objects(objects(np.array([40.0, 50.0])), objects(np.array([40.0, 50.0])))

    rows = SegmentBatch()({"image": np.stack([PICTURE, PICTURE]), "points": clicks, "id": [7, 8]})

    assert [len(codes) for codes in rows["rle"]] == [1, 1]
    assert rows["id"].tolist() == [7, 8]
    assert np.asarray(rows["mask_box"][0]).shape == (1, 4)


def test_without_prompts_everything_is_segmented(model: Model) -> None:
    few = EverythingOptions(points_per_side=3, pred_iou_thresh=0.0, stability_score_thresh=0.0)

    rows = SegmentBatch(everything=few)({"image": np.stack([PICTURE])})

    expected = model.everything(PICTURE, options=few)
    assert [code.encode() for code in rows["rle"][0]] == [s.rle["counts"] for s in expected]


def test_a_bad_row_says_why_and_the_others_are_done() -> None:
    batch = {
        "image": objects(b"no image", PICTURE, None), "box": objects(BOX, [1, 2], BOX),
    }  # fmt: skip

    rows = SegmentBatch()(batch)

    assert ["not an image" in rows["error"][0], rows["error"][1] != ""] == [True, True]
    assert [list(codes) for codes in rows["rle"]] == [[], [], []]
    with pytest.raises(ImageError):
        SegmentBatch(on_error="raise")(batch)


def test_it_can_be_pickled_and_refuses_what_it_cannot_use() -> None:
    segment = SegmentBatch(threads=1)
    segment({"image": np.stack([PICTURE]), "box": [BOX]})

    again = pickle.loads(pickle.dumps(segment))

    assert len(again({"image": np.stack([PICTURE]), "box": [BOX]})["rle"][0]) == 1
    with pytest.raises(OptionError, match="no column `image`"):
        again({"picture": [PICTURE]})
    with pytest.raises(OptionError, match="2 rows"):
        again({"image": [PICTURE], "box": [BOX, BOX]})
    assert decode_masks([], 3, 4).shape == (0, 3, 4)
