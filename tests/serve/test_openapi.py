"""Whatever the OpenAPI document allows, and much that it does not, is never a 500."""

import json
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

from samgraph.serve.app import ENDPOINTS
from samgraph.serve.openapi import openapi_document
from tests.serve.serving import Running, running
from tests.serve.test_videos import CUP

# Examples per endpoint; `SAMGRAPH_FUZZ=2000` looks further.
EXAMPLES = int(os.environ.get("SAMGRAPH_FUZZ", "12"))
DOCUMENT = openapi_document(ENDPOINTS)
SLOW = {"get_videos_events"}  # a stream without end
LEAST_POINTS = 2  # per side, of automatic masks: more would take long
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if operation["operationId"] not in SLOW
]
ANYTHING: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)  # fmt: skip


def values(schema: dict[str, Any]) -> SearchStrategy[Any]:
    """Values that a schema allows, often near the edges."""
    if "$ref" in schema:
        return values(DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    if "anyOf" in schema:
        return st.one_of([values(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds: dict[str, Callable[[], SearchStrategy[Any]]] = {
        "integer": lambda: st.integers(
            schema.get("minimum", -(2**53)), schema.get("maximum", 2**53)
        ) | st.integers(max(0, schema.get("minimum", 0)), min(300, schema.get("maximum", 300))),
        "number": lambda: st.floats(
            schema.get("minimum", -1e9), schema.get("maximum", 1e9), allow_nan=False
        ) | st.floats(max(0, schema.get("minimum", 0)), min(300, schema.get("maximum", 300))),
        "string": lambda: st.from_regex(schema["pattern"], fullmatch=True)
        if "pattern" in schema
        else st.text(max_size=min(30, schema.get("maxLength", 30))),
        "boolean": st.booleans,
        "null": st.none,
        "array": lambda: arrays(schema),
        "object": lambda: records(schema),
    }  # fmt: skip
    return kinds[schema["type"]]() if "type" in schema else ANYTHING


def arrays(schema: dict[str, Any]) -> SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*(values(each) for each in schema["prefixItems"])).map(list)
    most = min(4, schema.get("maxItems", 4))
    return st.lists(values(schema["items"]), min_size=schema.get("minItems", 0), max_size=most)


def records(schema: dict[str, Any]) -> SearchStrategy[Any]:
    fields = {name: values(each) for name, each in schema.get("properties", {}).items()}
    must = {name: fields[name] for name in schema.get("required", ())}
    may = {name: each for name, each in fields.items() if name not in must}
    return st.fixed_dictionaries(must, optional=may)


def bodies(operation: dict[str, Any]) -> SearchStrategy[Any]:
    """What is sent: mostly what the document asks for."""
    content = operation.get("requestBody", {}).get("content", {})
    if "application/octet-stream" in content:
        return st.binary(max_size=200)
    if "application/json" not in content:
        return st.none()
    good = values(content["application/json"]["schema"])
    return good | good | good | ANYTHING


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, str]]]:
    """A server with an image and a prompted video."""
    with running(tmp_path_factory.mktemp("fuzz"), max_sessions=50) as server:
        image = server.client.post("/api/images?sample=cat").json()["id"]
        video = server.client.post("/api/videos?sample=cup").json()["id"]
        server.client.post(f"/api/videos/{video}/prompts", json=CUP)
        yield server, {"images": image, "videos": video}


def filled(path: str, known: dict[str, str], numbers: random.Random) -> str:
    """A path with ids of things that are there, mostly, and frames that are, often."""
    kind = "images" if "/images" in path else "videos"
    path = path.replace("{id}", known[kind] if numbers.random() < 0.9 else "x%00%2e")
    for name in ("{n}", "{obj}", "{frame}"):
        path = path.replace(name, str(numbers.choice([0, 1, 2, 47, 48, 10**9, 10**30])))
    return path.replace("{job}", "0")


@pytest.mark.parametrize(
    ("method", "path", "operation"), OPERATIONS, ids=[each[2]["operationId"] for each in OPERATIONS]
)
def test_no_reply_is_a_500(
    full: tuple[Running, dict[str, str]], method: str, path: str, operation: dict[str, Any]
) -> None:
    server, known = full
    if method == "DELETE" and path in ("/api/images/{id}", "/api/videos/{id}"):
        known = {"images": "gone", "videos": "gone"}  # others still need what is there
    queries = {
        each["name"]: each["schema"] for each in operation["parameters"] if each["in"] == "query"
    }
    query = st.fixed_dictionaries(
        {}, optional={name: values(each) for name, each in queries.items()}
    )

    @settings(max_examples=EXAMPLES)
    @given(bodies(operation), query, st.integers(0, 2**32))
    def check(body: Any, asked: dict[str, Any], seed: int) -> None:
        if path.endswith("/everything") and isinstance(body, dict) and body:
            body["points_per_side"] = LEAST_POINTS
        if path.endswith("/everything") and not body:
            return
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = server.client.request(
            method, filled(path, known, random.Random(seed)), params=asked, content=sent
        )
        assert reply.status_code < 500 or reply.status_code == 503, reply.text
        if reply.status_code >= 400:
            assert reply.json()["error"]["message"]
        if path.endswith("/track") and method == "POST" and reply.status_code == 202:
            server.client.delete(filled(path, known, random.Random(seed)))

    check()


def test_a_planted_failure_is_a_500_that_says_nothing(
    full: tuple[Running, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, known = full

    def broken(*_: object) -> None:
        raise KeyError("/secret/path")

    monkeypatch.setattr("samgraph.serve.image_sessions.predict", broken)
    reply = server.client.post(
        f"/api/images/{known['images']}/predict", json={"points": [[1, 1]], "labels": [1]}
    )

    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "bug"
    assert "secret" not in reply.text
