"""What the server says of itself: page, info, health, metrics, OpenAPI, samples."""

import io
from pathlib import Path

import pytest
from PIL import Image

from samgraph.formats.table import FORMATS
from samgraph.version import __version__
from tests.serve.serving import Running, error_of, image_id, running


def test_the_page_and_its_files_are_served(server: Running) -> None:
    page = server.client.get("/")
    file = server.client.get("/static/index.html")

    assert page.headers["content-type"].startswith("text/html")
    assert b"samgraph" in page.content
    assert file.headers["etag"]
    assert file.headers["cache-control"] == "no-cache"
    again = server.client.get("/static/index.html", headers={"if-none-match": file.headers["etag"]})
    assert again.status_code == 304
    assert server.client.get("/static/../app.py").status_code == 404
    assert server.client.get("/static/%2e%2e/app.py").status_code == 404


def test_info_says_what_there_is(server: Running) -> None:
    info = server.client.get("/api/info").json()

    assert info["version"] == __version__
    assert info["model"] == {"name": "samgraph-nano", "image_size": 512}
    assert (info["engine"], info["device"], info["precision"]) == ("openvino", "cpu", "fp32")
    assert {entry["name"] for entry in info["formats"]["video"]} == {*FORMATS, "effect"}
    assert {effect["name"] for effect in info["effects"]} == {
        "cutout", "blur", "grey", "outline", "spotlight", "pixelate", "colour",
    }  # fmt: skip
    assert info["limits"]["max_sessions"] == 200


def test_samples_have_thumbnails_and_open(server: Running) -> None:
    for sample in server.client.get("/api/info").json()["samples"]:
        picture = server.client.get(sample["thumbnail"])
        assert max(Image.open(io.BytesIO(picture.content)).size) <= 320
        opened = server.client.post(f"/api/{sample['kind']}s", params={"sample": sample["id"]})
        assert opened.status_code == 201
    assert server.client.post("/api/images?sample=nothing").status_code == 404
    assert server.client.post("/api/images?sample=cup").status_code == 404
    assert server.client.get("/api/samples/x/thumbnail").status_code == 404


def test_ready_comes_after_warm_up(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert server.client.get("/healthz").json() == {"status": "ok"}
        early = server.client.get("/readyz")
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        server.service.warm_up()
        assert server.client.get("/readyz").json() == {"status": "ready"}
        server.service.stop()
        assert error_of(server.client.get("/readyz"))["code"] == "stopping"
        assert server.client.get("/healthz").status_code == 200
        refused = server.client.post("/api/images?sample=cat")
        assert (refused.status_code, error_of(refused)["code"]) == (503, "stopping")


def test_metrics_count_by_endpoint_and_status(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        image_id(server.client)
        server.client.get("/api/images/nothing")
        text = server.client.get("/metrics").text

    assert 'samgraph_requests_total{endpoint="/api/images",status="201"} 1.0' in text
    assert 'samgraph_requests_total{endpoint="/api/images/{id}",status="404"} 1.0' in text
    assert "samgraph_sessions 1.0" in text
    assert "samgraph_compute_seconds_count 1.0" in text
    assert "nothing" not in text


def test_unknown_paths_and_methods_are_errors_as_others(server: Running) -> None:
    missing, wrong = server.client.get("/api/nothing"), server.client.put("/api/images")

    assert (missing.status_code, error_of(missing)["code"]) == (404, "not_found")
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")


def test_the_openapi_document_names_every_endpoint(server: Running) -> None:
    from samgraph.serve.app import ENDPOINTS

    document = server.client.get("/openapi.json").json()

    assert document["openapi"] == "3.1.0"
    operations = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(operations) == len(set(operations)) == len(ENDPOINTS)
    body = document["paths"]["/api/images/{id}/predict"]["post"]["requestBody"]
    reference = body["content"]["application/json"]["schema"]["$ref"]
    assert reference.rsplit("/", 1)[1] in document["components"]["schemas"]


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/info", "/api/nothing", "/static/x"])
def test_every_reply_has_the_headers_of_security(server: Running, path: str) -> None:
    headers = server.client.get(path).headers

    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-request-id"]
    assert "server" not in headers or "uvicorn" in headers["server"]
