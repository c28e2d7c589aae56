"""Images over HTTP: upload, click, refine, everything, document, export, delete."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samgraph.formats.table import IMAGE_FORMATS
from samgraph.media.mask import rle
from samgraph.serve.samples import MEDIA
from tests.serve.serving import Running, error_of, image_id, nano, running

CLICK = {"points": [[220, 150]], "labels": [1]}


def png(width: int = 40, height: int = 30) -> bytes:
    buffer = io.BytesIO()
    pixels = np.arange(width * height * 3, dtype=np.uint32).reshape(height, width, 3) % 251
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_click_gives_the_masks_of_the_library(server: Running) -> None:
    name = image_id(server.client)

    reply = server.client.post(f"/api/images/{name}/predict", json=CLICK)

    expected = nano().image(MEDIA / "cat.jpg").predict(points=[(220, 150)])
    found = reply.json()
    assert reply.status_code == 200
    assert [mask["rle"]["counts"] for mask in found["masks"]] == [
        segment.rle["counts"].decode() for segment in expected.segments
    ]
    assert found["best"] == int(expected.scores.argmax())
    assert [mask["area"] for mask in found["masks"]] == expected.areas.tolist()
    assert [mask["box"] for mask in found["masks"]] == expected.boxes.tolist()


def test_several_points_and_boxes_give_one_mask(server: Running) -> None:
    name = image_id(server.client)
    two = {"points": [[220, 150], [10, 10]], "labels": [1, 0]}

    for body in (two, {"box": [100, 50, 300, 250]}, CLICK | {"multimask": False}):
        found = server.client.post(f"/api/images/{name}/predict", json=body).json()
        assert len(found["masks"]) == 1


def test_a_token_refines_an_earlier_reply(server: Running) -> None:
    name = image_id(server.client)
    first = server.client.post(f"/api/images/{name}/predict", json=CLICK).json()
    body = CLICK | {"multimask": False}

    plain = server.client.post(f"/api/images/{name}/predict", json=body).json()
    refined = server.client.post(
        f"/api/images/{name}/predict", json=body | {"refine": first["refine"]}
    ).json()
    lost = server.client.post(f"/api/images/{name}/predict", json=body | {"refine": "x"}).json()

    image = nano().image(MEDIA / "cat.jpg")
    earlier = image.predict(points=[(220, 150)])
    expected = image.predict(points=[(220, 150)], mask=earlier, multimask=False)
    assert refined["masks"][0]["rle"]["counts"] == expected.segments[0].rle["counts"].decode()
    assert refined["masks"] != plain["masks"]
    assert lost["masks"] == plain["masks"]


def test_a_token_may_name_one_of_three_masks(server: Running) -> None:
    name = image_id(server.client)
    first = server.client.post(f"/api/images/{name}/predict", json=CLICK).json()

    def refined(token: str) -> object:
        body = CLICK | {"refine": token, "multimask": False}
        return server.client.post(f"/api/images/{name}/predict", json=body).json()["masks"]

    token = first["refine"]
    assert refined(f"{token}.{first['best']}") == refined(token)
    assert len({json.dumps(refined(f"{token}.{n}")) for n in range(3)}) > 1
    assert refined(f"{token}.7") == refined("forgotten")


def test_uploads_as_body_and_as_form_are_the_same(server: Running) -> None:
    data = png()
    body = server.client.post(
        "/api/images", content=data, headers={"x-filename": "a%20b%C3%A9.png"}
    )
    form = server.client.post("/api/images", files={"file": ("c:\\dir\\x.png", data)})

    assert (body.status_code, form.status_code) == (201, 201)
    assert body.json()["name"] == "a bé.png"
    assert form.json()["name"] == "x.png"
    assert (body.json()["width"], body.json()["height"]) == (40, 30)


def test_the_picture_is_upright(server: Running) -> None:
    buffer = io.BytesIO()
    image = Image.new("RGB", (40, 20), "red")
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(buffer, "JPEG", exif=exif)
    made = server.client.post("/api/images", content=buffer.getvalue()).json()

    reply = server.client.get(f"/api/images/{made['id']}/picture")

    assert reply.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(reply.content)).size == (20, 40) == (made["width"], made["height"])


def test_a_small_png_stays_one(server: Running) -> None:
    made = server.client.post("/api/images", content=png()).json()

    reply = server.client.get(f"/api/images/{made['id']}/picture")

    assert reply.headers["content-type"] == "image/png"
    shown = np.asarray(Image.open(io.BytesIO(reply.content)))
    assert np.array_equal(shown, np.asarray(Image.open(io.BytesIO(png()))))


def test_everything_gives_masks(server: Running) -> None:
    name = image_id(server.client, "coffee")

    reply = server.client.post(
        f"/api/images/{name}/everything",
        json={"points_per_side": 4, "pred_iou_thresh": 0, "stability_score_thresh": 0},
    )

    expected = nano().everything(
        MEDIA / "coffee.jpg",
        points_per_side=4,
        pred_iou_thresh=0.0,
        stability_score_thresh=0.0,
        progress=False,
    )
    assert [mask["rle"]["counts"] for mask in reply.json()["masks"]] == [
        segment.rle["counts"].decode() for segment in expected
    ]
    assert len(expected) > 3


def objects(server: Running, name: str) -> list[dict[str, object]]:
    found = server.client.post(f"/api/images/{name}/predict", json=CLICK).json()
    mask = found["masks"][found["best"]]["rle"]
    return [{"id": 1, "name": "cat", "color": "#ff0000", "mask": mask}]


@pytest.mark.parametrize("format", [*IMAGE_FORMATS, "effect"])
def test_every_format_is_exported(server: Running, format: str) -> None:
    name = image_id(server.client)
    body = {"format": format, "objects": objects(server, name), "effect": {"name": "blur"}}

    reply = server.client.post(f"/api/images/{name}/export", json=body)

    assert reply.status_code == 200, reply.text
    assert "attachment; filename=" in reply.headers["content-disposition"]
    assert "cat" in reply.headers["content-disposition"]
    if reply.headers["content-type"].startswith("image/"):
        assert Image.open(io.BytesIO(reply.content)).size == (451, 300)
    elif format != "yolo":
        assert b"cat" in reply.content


def test_a_coco_export_holds_the_mask(server: Running) -> None:
    name = image_id(server.client)
    chosen = objects(server, name)

    body = {"format": "coco", "objects": chosen}
    found = server.client.post(f"/api/images/{name}/export", json=body).json()

    assert found["categories"][0]["name"] == "cat"
    shape = found["annotations"][0]["segmentation"]
    assert np.array_equal(rle.decode(shape), rle.decode(chosen[0]["mask"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"points": [[1e6, 0]]}, 400),
        ({"points": [[1, 1]], "labels": [1, 1]}, 400),
        ({"points": [[1, 1]], "labels": [2]}, 422),
        ({"points": [[1]]}, 422),
        ({"points": "x"}, 422),
        ({"box": [9, 9, 1, 1]}, 400),
        ({"mask": {"size": [1, 1], "counts": "1"}}, 400),
        ({"mask": {"size": [300, 451], "counts": "~~"}}, 400),
        ({"unknown": 1}, 422),
    ],
)
def test_bad_prompts_are_refused_in_a_sentence(
    server: Running, body: dict[str, object], status: int
) -> None:
    name = image_id(server.client)

    reply = server.client.post(f"/api/images/{name}/predict", json=body)

    assert reply.status_code == status
    assert error_of(reply)["code"] == "bad_input"


@pytest.mark.parametrize("data", [b"{", b"\xff\xfe", b"[" * 100_000, b'{"points": NaN}', b"null"])
def test_what_is_not_json_is_refused(server: Running, data: bytes) -> None:
    name = image_id(server.client)

    reply = server.client.post(f"/api/images/{name}/predict", content=data)

    assert reply.status_code in (400, 422)
    assert error_of(reply)


@pytest.mark.parametrize("data", [b"", b"x", b"\x89PNG but no more", b"GIF89a"])
def test_what_is_no_image_is_refused_and_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    with running(tmp_path) as server:
        reply = server.client.post("/api/images", content=data)

        assert reply.status_code == 400
        assert error_of(reply)["code"] == "bad_input"
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_too_many_pixels_are_refused(tmp_path: Path) -> None:
    with running(tmp_path, max_pixels=1000) as server:
        reply = server.client.post("/api/images", content=png(50, 50))

    assert reply.status_code == 400
    assert "50 x 50" in error_of(reply)["message"]


def test_a_deleted_image_is_gone(server: Running) -> None:
    name = image_id(server.client)

    assert server.client.delete(f"/api/images/{name}").status_code == 204
    assert server.client.get(f"/api/images/{name}").status_code == 410
    assert server.client.post(f"/api/images/{name}/predict", json=CLICK).status_code == 410
    assert server.client.get("/api/images/i0000000000000000").status_code == 404
    assert server.client.get("/api/images/..%2f..%2fetc").status_code == 404


def test_document_and_session_survive_a_restart(tmp_path: Path) -> None:
    document = {"objects": [{"id": 1, "name": "é", "color": "#00ff00", "prompts": [[1, 2]]}]}
    with running(tmp_path) as server:
        name = image_id(server.client)
        before = server.client.post(f"/api/images/{name}/predict", json=CLICK).json()
        saved = server.client.put(f"/api/images/{name}/document", json=document)
        assert saved.status_code == 204

    with running(tmp_path) as server:
        listed = server.client.get("/api/sessions").json()
        assert [(entry["id"], entry["kind"], entry["name"]) for entry in listed] == [
            (name, "image", "cat.jpg")
        ]
        assert listed[0]["bytes"] > 30_000
        assert server.client.get(f"/api/images/{name}").json()["document"] == document
        after = server.client.post(f"/api/images/{name}/predict", json=CLICK).json()
        assert after["masks"] == before["masks"]


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"objects": 1}', b'{"objects": [{}]}', b"{"])
def test_a_document_that_is_none_is_refused(server: Running, data: bytes) -> None:
    name = image_id(server.client)

    reply = server.client.put(f"/api/images/{name}/document", content=data)

    assert reply.status_code in (400, 422)
    assert server.client.get(f"/api/images/{name}").json()["document"] is None
