"""Label Studio's ML backend: images. Its SDK decodes the brush and validates the prediction."""

import warnings
from typing import Any

import numpy as np
import pytest

from samgraph.formats.label_studio import decode_brush
from samgraph.media.image.reading import read_image
from samgraph.media.mask.polygons import polygons_to_mask
from samgraph.serve.protocols.label_config import read_control
from samgraph.serve.protocols.label_studio_body import Context, Region, RegionValue, read_clicks
from samgraph.serve.protocols.pictures import decode_base64
from samgraph.serve.replies import RequestError
from tests.checkpoint.built_in import needs_built_in
from tests.serve.protocols.drawn import GOOD, box, click, data_uri, iou, picture_bytes, shapes
from tests.serve.serving import Running, error_of, running


def config(control: str = "BrushLabels") -> str:
    """As Label Studio's template for SAM: smart keypoints and rectangles beside the control."""
    return f"""
    <View>
      <Image name="image" value="$picture" zoom="true"/>
      <{control} name="tag" toName="image"><Label value="cat"/><Label value="dog"/></{control}>
      <KeyPointLabels name="tag2" toName="image" smart="true"><Label value="dog"/></KeyPointLabels>
    </View>"""


def percent(mask: Any) -> dict[str, float]:
    x, y = click(mask)
    return {"x": 100 * x / mask.shape[1], "y": 100 * y / mask.shape[0]}


def keypoint(mask: Any, is_positive: int = 1) -> dict[str, Any]:
    return {
        "original_width": mask.shape[1],
        "original_height": mask.shape[0],
        "image_rotation": 0,
        "value": {**percent(mask), "width": 0.31, "keypointlabels": ["dog"]},
        "is_positive": bool(is_positive),
        "id": "k1",
        "from_name": "tag2",
        "to_name": "image",
        "type": "keypointlabels",
        "origin": "manual",
    }


def rectangle(mask: Any) -> dict[str, Any]:
    height, width = mask.shape
    left, top, right, bottom = box(mask)
    value = {
        "x": 100 * left / width,
        "y": 100 * top / height,
        "width": 100 * (right - left) / width,
        "height": 100 * (bottom - top) / height,
        "rotation": 0,
        "rectanglelabels": ["cat"],
    }
    return {"value": value, "id": "r1", "type": "rectanglelabels", "origin": "manual"}


def predict(server: Running, context: Any, label_config: str, **changes: Any) -> Any:
    body = {
        "tasks": [{"id": 7, "data": {"picture": data_uri(picture_bytes())}}],
        "project": "1.1700000000",
        "label_config": label_config,
        "params": {"login": None, "password": None, "context": context},
    }
    return server.client.post("/predict", json=body | changes)


def result(reply: Any) -> Any:
    assert reply.status_code == 200, reply.text
    (prediction,) = reply.json()["results"]
    return prediction["result"]


def test_health_setup_and_webhook(server: Running) -> None:
    sent = {"project": "1.17", "schema": config(), "hostname": "", "access_token": "", "x": 1}

    assert server.client.get("/health").json()["status"] == "UP"
    version = server.client.post("/setup", json=sent).json()["model_version"]
    assert version == server.service.model.config.name
    assert server.client.post("/webhook", json={"action": "START_TRAINING"}).status_code == 201


@needs_built_in
def test_a_keypoint_gives_a_brush_mask(server: Running) -> None:
    target = shapes()[0]

    reply = predict(server, {"result": [keypoint(target)]}, config())

    (region,) = result(reply)
    height, width = target.shape
    assert (region["original_width"], region["original_height"]) == (width, height)
    assert (region["from_name"], region["to_name"], region["type"]) == (
        "tag",
        "image",
        "brushlabels",
    )
    assert region["value"]["brushlabels"] == ["dog"]
    assert region["value"]["format"] == "rle"
    assert iou(decode_brush(region["value"]["rle"], (height, width)), target) >= GOOD
    assert reply.json()["results"][0]["score"] > 0


@needs_built_in
def test_label_studios_own_decoder_reads_the_brush(
    server: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        brush = pytest.importorskip(
            "label_studio_sdk.converter.brush",
            reason="label-studio-sdk is not installed",
            exc_type=ImportError,
        )
    target = shapes()[0]

    (region,) = result(predict(server, {"result": [rectangle(target)]}, config()))

    flat = brush.decode_rle(region["value"]["rle"])
    assert iou(flat.reshape(*target.shape, 4)[:, :, 3] > 0, target) >= GOOD


@needs_built_in
@pytest.mark.parametrize("control", ["BrushLabels", "PolygonLabels", "RectangleLabels"])
def test_label_studios_own_interface_accepts_the_prediction(server: Running, control: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interface = pytest.importorskip(
            "label_studio_sdk.label_interface",
            reason="label-studio-sdk is not installed with all it needs",
            exc_type=ImportError,
        )
        reply = predict(server, {"result": [keypoint(shapes()[0])]}, config(control)).json()

        found = interface.LabelInterface(config(control)).validate_prediction(
            reply["results"][0], return_errors=True
        )

    assert found == []


@needs_built_in
def test_other_controls_get_other_shapes(server: Running) -> None:
    target = shapes()[0]
    height, width = target.shape
    context = {"result": [keypoint(target), keypoint(shapes()[1], 0)]}

    (polygon,) = result(predict(server, context, config("PolygonLabels")))
    (upright,) = result(predict(server, context, config("RectangleLabels")))
    (bitmask,) = result(predict(server, context, config("BitmaskLabels")))

    ring = np.array(polygon["value"]["points"]) * (width / 100, height / 100)
    assert iou(polygons_to_mask([ring], (height, width)), target) >= GOOD
    left, _, right, _ = box(target)
    assert upright["value"]["x"] == pytest.approx(100 * left / width, abs=2)
    assert upright["value"]["width"] == pytest.approx(100 * (right - left) / width, abs=3)
    picture = read_image(decode_base64(bitmask["value"]["imageDataURL"]))
    assert iou(picture[:, :, 0] > 0, target) >= GOOD


@needs_built_in
def test_an_event_on_an_image_gives_a_bitmask(server: Running) -> None:
    target = shapes()[0]
    point = {"type": "keypointlabels", "value": {**percent(target), "positive": True}}

    (found,) = result(predict(server, {"event": "predict", "result": [point]}, config()))
    (ready,) = result(predict(server, {"event": "prewarm", "frame": 1}, config()))
    (able,) = result(predict(server, {"event": "capabilities"}, "", tasks=[]))

    picture = read_image(decode_base64(found["value"]["imageDataURL"]))
    assert found["type"] == "bitmask"
    assert iou(picture[:, :, 0] > 0, target) >= GOOD
    assert (ready["type"], ready["value"]["status"]) == ("prewarm_ack", "ok")
    assert able["value"]["prompts"] == ["point", "box"]
    assert {"tag": "VideoRectangle", "output": "bbox", "features": ["track"]} in able["value"][
        "targets"
    ]


def test_tasks_without_clicks_get_an_empty_prediction_each(server: Running) -> None:
    tasks = [{"id": number, "data": {"picture": "s3://bucket/key"}} for number in range(3)]

    reply = predict(server, None, config(), tasks=tasks).json()

    assert [one["result"] for one in reply["results"]] == [[], [], []]
    assert predict(server, None, config(), tasks=[]).json()["results"] == []


@pytest.mark.parametrize(
    ("address", "status", "says"),
    [
        ("http://127.0.0.1:9/a.png", 403, "fetches nothing there"),
        ("https://labels.example.org/a.png", 403, "fetches nothing there"),
        ("/data/upload/1/a.png", 403, "path of Label Studio"),
        ("//127.0.0.1/a.png", 400, "cannot be fetched"),
        ("file:///etc/passwd", 400, "cannot be fetched"),
        ("s3://bucket/key", 400, "cannot be fetched"),
        ("../../etc/passwd", 400, "cannot be fetched"),
        ("http://user:secret@127.0.0.1/a.png", 400, "cannot be fetched"),
        ("data:image/png;base64,####", 400, "not base64"),
    ],
)
def test_addresses_are_refused(server: Running, address: str, status: int, says: str) -> None:
    tasks = [{"id": 1, "data": {"picture": address}}]

    reply = predict(server, {"result": [keypoint(shapes()[0])]}, config(), tasks=tasks)

    assert reply.status_code == status
    assert says in error_of(reply)["message"]
    if status == 403:
        assert "--allow-host" in error_of(reply)["hint"]


@pytest.mark.parametrize(
    ("label_config", "says"),
    [
        ("", "not XML"),
        ("<View>", "not XML"),
        ("<View><Image name='image' value='$picture'/></View>", "no tag for masks"),
        ("<View><BrushLabels name='t' toName='image'/></View>", "no tag for masks"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><View>&a;</View>", "declares a type"),
    ],
)
def test_a_bad_configuration_is_refused(server: Running, label_config: str, says: str) -> None:
    reply = predict(server, {"result": [keypoint(shapes()[0])]}, label_config)

    assert reply.status_code == 422
    assert says in error_of(reply)["message"]


def test_bad_bodies_are_refused(server: Running) -> None:
    strange = keypoint(shapes()[0]) | {"value": {"x": 400, "y": 5}}

    outside = predict(server, {"result": [strange]}, config())
    typed = predict(server, {"result": [{"value": {"x": "1"}}]}, config())
    empty = predict(server, {"result": [keypoint(shapes()[0])]}, config(), tasks=[{"data": {}}])
    broken = server.client.post("/predict", content=b"{")

    assert "outside the image" in error_of(outside)["message"]
    assert (outside.status_code, typed.status_code) == (400, 422)
    assert (empty.status_code, broken.status_code) == (422, 400)


def test_a_body_that_is_too_long_is_refused(tmp_path: Any) -> None:
    with running(tmp_path, max_tool_body_mb=0.01) as small:
        reply = predict(small, {"result": [keypoint(shapes()[0])]}, config())

    assert reply.status_code == 413


def test_a_password_is_the_token(tmp_path: Any) -> None:
    with running(tmp_path, token="a-long-token") as guarded:
        open_to_all = guarded.client.get("/health")
        refused = guarded.client.post("/setup", json={}, auth=("anybody", "wrong-token"))
        answered = guarded.client.post("/setup", json={}, auth=("anybody", "a-long-token"))

    assert open_to_all.status_code == 200
    assert refused.status_code == 401
    assert answered.status_code == 200


def test_the_sign_of_a_click_is_where_either_editor_puts_it() -> None:
    value = RegionValue(x=1, y=2)
    regions = [
        Region(value),
        Region(value, is_positive=False),
        Region(RegionValue(x=1, y=2, positive=False)),
        Region(value, is_positive=1),
        Region(RegionValue(x=5, y=6, width=10, height=20)),
        Region(RegionValue()),
    ]

    found = read_clicks(Context(result=regions))

    assert found.labels == (1, 0, 0, 1)
    assert found.box == (5, 6, 15, 26)


def test_the_control_and_its_labels_are_found() -> None:
    beside = """<View><Labels name="l" toName="v"><Label value="car"/></Labels>
      <Video name="v" value="$clip"/><VideoRectangle name="box" toName="v"/></View>"""

    video, image = read_control(beside), read_control(config("PolygonLabels"))

    assert (video.type, video.is_video, video.key, video.labels) == (
        "videorectangle",
        True,
        "clip",
        ("car",),
    )
    assert (image.type, image.key, image.is_video) == ("polygonlabels", "picture", False)
    assert (image.label("dog"), image.label("mouse"), image.label(None)) == ("dog", "cat", "cat")
    with pytest.raises(RequestError, match="too long"):
        read_control(" " * (1 << 21))
