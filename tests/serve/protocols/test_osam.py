"""osam's `/api/generate`: what its client sends, and its own types on what comes back."""

import base64
import io
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import PromptError
from samgraph.serve.protocols.osam import OsamPrompt, annotations, read_clicks
from tests.checkpoint.built_in import needs_built_in
from tests.serve.protocols.drawn import GOOD, base64_of, box, click, iou, picture_bytes, shapes
from tests.serve.serving import Running


def generate(server: Running, prompt: Any, **changes: Any) -> Any:
    body = {"model": "sam2:tiny", "image": base64_of(picture_bytes()), "prompt": prompt} | changes
    return server.client.post("/api/generate", json=body)


def full_mask(annotation: dict[str, Any]) -> Any:
    where = annotation["bounding_box"]
    crop = np.asarray(Image.open(io.BytesIO(base64.b64decode(annotation["mask"])))) > 0
    mask = np.zeros(shapes()[0].shape, np.bool_)
    mask[where["ymin"] : where["ymax"] + 1, where["xmin"] : where["xmax"] + 1] = crop
    return mask


@needs_built_in
def test_a_click_covers_the_shape_under_it(server: Running) -> None:
    target = shapes()[0]

    reply = generate(server, {"points": [click(target)], "point_labels": [1]})

    (found,) = reply.json()["annotations"]
    assert reply.status_code == 200
    assert iou(full_mask(found), target) >= GOOD
    assert 0 < found["score"] <= 1


@needs_built_in
def test_box_corners_are_points_with_labels(server: Running) -> None:
    target = shapes()[1]
    left, top, right, bottom = box(target)
    prompt = {"points": [[left, top], [right, bottom]], "point_labels": [2, 3]}

    (found,) = generate(server, prompt).json()["annotations"]

    assert iou(full_mask(found), target) >= GOOD


@needs_built_in
def test_the_reply_fits_the_types_of_osam(server: Running) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        types = pytest.importorskip(
            "osam.types", reason="osam is not installed", exc_type=ImportError
        )
    target = shapes()[0]
    prompt = types.Prompt(points=np.array([click(target)]), point_labels=np.array([1]))
    sent = types.GenerateRequest(model="sam2:tiny", prompt=prompt).model_dump(mode="json")

    reply = generate(server, sent["prompt"]).json()

    (found,) = reply["annotations"]
    crop = np.asarray(Image.open(io.BytesIO(base64.b64decode(found["mask"]))))
    parsed = types.GenerateResponse(
        **{**reply, "annotations": [{**found, "mask": crop.astype(np.bool_)}]}
    )  # which checks that the mask is as large as its box
    assert parsed.model == "sam2:tiny"


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        (None, "no prompt"),
        ({"texts": ["a cat"]}, "points and boxes"),
        ({"points": [[1, 1]], "point_labels": [1, 1]}, "every point needs a label"),
        ({"points": [[1, 1]], "point_labels": [4]}, "no such label"),
        ({"points": [[1, 1]], "point_labels": [-1]}, "no such label"),
        ({"points": [[1, 1]], "point_labels": [2]}, "two corners"),
        ({"points": [[-5, 1]], "point_labels": [1]}, "outside the image"),
    ],
)
def test_a_bad_prompt_is_told_in_osams_form(server: Running, prompt: Any, says: str) -> None:
    reply = generate(server, prompt)

    assert reply.status_code == 400
    assert says in reply.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"image": None}, 400, "no image"),
        ({"image": "no base64!"}, 400, "not base64"),
        ({"image": "http://127.0.0.1:9/a.png"}, 400, "fetches none"),
        ({"image": "/etc/passwd"}, 400, "a path is not taken"),
        ({"image": base64_of(b"GIF89a...")}, 400, "image"),
        ({"model": "yoloworld:latest"}, 400, "no model"),
        ({"model": 3}, 422, "model"),
    ],
)
def test_a_bad_body_is_told_in_osams_form(
    server: Running, changes: Any, status: int, says: str
) -> None:
    reply = generate(server, {"points": [[1, 1]], "point_labels": [1]}, **changes)
    beyond = generate(server, {"points": [[1e300, 0]], "point_labels": [1]})

    assert beyond.status_code == 422
    assert reply.status_code == status
    assert says in reply.json()["detail"]


def test_labels_become_clicks_and_a_box() -> None:
    prompt = OsamPrompt([(1, 2), (3, 4), (5, 6), (7, 8)], [3, 1, 2, 0])

    found = read_clicks(prompt)

    assert found.box == (5, 6, 1, 2)
    assert (found.points, found.labels) == (((3, 4), (7, 8)), (1, 0))
    with pytest.raises(PromptError, match="two corners"):
        read_clicks(OsamPrompt([(1, 2), (3, 4)], [2, 2]))


def test_an_empty_mask_has_no_annotation() -> None:
    assert annotations(np.zeros((4, 5), np.bool_), 0.5) == []
