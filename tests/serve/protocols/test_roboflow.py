"""Roboflow's SAM 2 routes: bodies as its client sends them, and its client itself."""

import io
import warnings
from typing import Any

import numpy as np
import pytest

from samgraph.media.mask import rle
from samgraph.media.mask.polygons import polygons_to_mask
from tests.checkpoint.built_in import needs_built_in
from tests.serve.protocols.drawn import GOOD, base64_of, box, click, drawn, iou, shapes
from tests.serve.protocols.drawn import picture_bytes as data
from tests.serve.serving import Running, running

SIZE = drawn(0)[1][0].shape


def centre_box(mask: Any) -> dict[str, float]:
    left, top, right, bottom = box(mask)
    size = {"width": right - left, "height": bottom - top}
    return {"x": (left + right) / 2, "y": (top + bottom) / 2, **size}


def point(mask: Any, positive: bool = True) -> dict[str, Any]:
    x, y = click(mask)
    return {"x": x, "y": y, "positive": positive}


def segment(server: Running, prompts: Any, **changes: Any) -> Any:
    image = {"type": "base64", "value": base64_of(data())}
    body = {"image": image, "prompts": prompts, "sam2_version_id": "hiera_tiny", "api_key": "x"}
    return server.client.post("/sam2/segment_image", json=body | changes)


@needs_built_in
@pytest.mark.parametrize("is_nested", [True, False])
def test_polygons_cover_the_shapes(server: Running, is_nested: bool) -> None:
    first, second = shapes()[0], shapes()[1]
    prompts: Any = [{"points": [point(first)]}, {"box": centre_box(second)}]

    reply = segment(server, {"prompts": prompts} if is_nested else prompts, format="json")

    found = reply.json()["predictions"]
    assert [one["format"] for one in found] == ["polygon", "polygon"]
    for prediction, target in zip(found, (first, second), strict=True):
        rings = [np.array(ring, np.float64) for ring in prediction["masks"]]
        assert iou(polygons_to_mask(rings, SIZE), target) >= GOOD
        assert 0 < prediction["confidence"] <= 1


@needs_built_in
def test_run_lengths_are_cocos(server: Running) -> None:
    target = shapes()[2]

    (found,) = segment(server, [{"points": [point(target)]}], format="rle").json()["predictions"]

    assert found["format"] == "rle"
    assert found["masks"]["size"] == list(SIZE)
    assert iou(rle.decode(found["masks"]), target) >= GOOD


@needs_built_in
def test_binary_is_an_npz_of_masks_and_logits(server: Running) -> None:
    target = shapes()[0]

    reply = segment(server, [{"box": centre_box(target)}], format="binary", multimask_output=False)

    with np.load(io.BytesIO(reply.content), allow_pickle=False) as found:
        assert found["masks"].shape == (1, *SIZE)
        assert found["low_res_masks"].dtype == np.float32
        assert iou(found["masks"][0], target) >= GOOD


def test_an_embedded_image_is_found_by_its_id(server: Running) -> None:
    image = {"type": "base64", "value": base64_of(data())}
    sent = {"image": image, "image_id": "scene"}

    first = server.client.post("/sam2/embed_image", json=sent)
    known = segment(server, [{"points": [point(shapes()[0])]}], image=None, image_id="scene")
    unknown = segment(server, [{"points": [point(shapes()[0])]}], image=None, image_id="other")

    assert first.json()["image_id"] == "scene"
    assert first.json()["time"] > 0
    assert len(known.json()["predictions"]) == 1
    assert unknown.status_code == 400
    assert "no image" in unknown.json()["message"]


@needs_built_in
def test_saved_logits_change_the_next_answer(server: Running) -> None:
    """Refining a click by its own logits is not the same as clicking again."""
    prompts = [{"points": [point(shapes()[3])]}]
    common = {"format": "rle", "image_id": "refined", "multimask_output": False}

    first = segment(server, prompts, save_logits_to_cache=True, **common).json()
    again = segment(server, prompts, **common).json()
    refined = segment(server, prompts, load_logits_from_cache=True, **common).json()

    assert again["predictions"] == first["predictions"]
    assert refined["predictions"] != first["predictions"]


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"image": {"type": "url", "value": "http://127.0.0.1:9/a.png"}}, 400, "base64"),
        ({"image": {"type": "numpy", "value": "gASVAAAAAAAAAAA="}}, 400, "not unpickled"),
        ({"image": {"type": "base64", "value": "http://x/y"}}, 400, "fetches none"),
        ({"prompts": None}, 400, "no prompt"),
        ({"prompts": [{}]}, 400, "no prompt"),
        ({"prompts": [{"points": [{"x": 9999, "y": 0, "positive": True}]}]}, 400, "outside"),
        ({"format": "png"}, 422, "format"),
        ({"prompts": [{"points": [{"x": "1", "y": 0}]}]}, 422, "x"),
    ],
)
def test_bad_input_is_told_in_roboflows_form(
    server: Running, changes: Any, status: int, says: str
) -> None:
    given = {"prompts": [{"points": [point(shapes()[0])]}]} | changes

    reply = segment(server, given.pop("prompts"), **given)

    assert reply.status_code == status
    assert says in reply.json()["message"]


@needs_built_in
def test_a_box_may_reach_over_the_edge(server: Running) -> None:
    around = {"x": 250, "y": 190, "width": 4000, "height": 4000}

    assert segment(server, [{"box": around}]).status_code == 200


@needs_built_in
def test_roboflows_own_client_understands_the_reply(server: Running) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sdk = pytest.importorskip(
            "inference_sdk", reason="inference-sdk is not installed", exc_type=ImportError
        )
        client = sdk.InferenceHTTPClient(api_url=server.url, api_key="x")
        target = shapes()[0]

        found = client.sam2_segment_image(
            drawn(0)[0][:, :, ::-1], prompts=[{"points": [point(target)]}], mask_input_format="rle"
        )
        with pytest.raises(sdk.http.errors.HTTPCallErrorError, match="no prompt"):
            client.sam2_segment_image(drawn(0)[0], prompts=[])

    assert iou(rle.decode(found["predictions"][0]["masks"]), target) >= GOOD


def test_roboflows_own_client_sends_the_token_as_its_key(tmp_path: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sdk = pytest.importorskip(
            "inference_sdk", reason="inference-sdk is not installed", exc_type=ImportError
        )
        with running(tmp_path, token="a-long-token") as guarded:
            client = sdk.InferenceHTTPClient(api_url=guarded.url, api_key="a-long-token")
            client.configure(sdk.InferenceConfiguration(api_key_transport="header"))

            found = client.sam2_segment_image(
                drawn(0)[0], prompts=[{"points": [point(shapes()[0])]}]
            )

    assert len(found["predictions"]) == 1
