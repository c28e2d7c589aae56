"""Exports of videos, effects, and session files."""

import io
import json
import zipfile
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samgraph.errors import OptionError
from samgraph.formats.table import FORMATS
from samgraph.media.mask import rle
from samgraph.media.video.frames import open_frames
from samgraph.serve.effects import EFFECTS, Painted, apply, apply_opaque
from samgraph.serve.schema import Effect
from tests.serve.serving import Running, error_of, running, until
from tests.serve.test_videos import CUP, masks, track, video_id


@pytest.fixture(scope="module")
def tracked(server: Running) -> str:
    """A video with a named object on three frames."""
    name = video_id(server.client)
    server.client.post(f"/api/videos/{name}/prompts", json=CUP)
    server.client.patch(f"/api/videos/{name}/objects/1", json={"name": "cup", "color": "#0000ff"})
    track(server, name, start=0, frames=3)
    return name


def ended(server: Running, job: str) -> dict[str, Any]:
    """The state of an export that has ended."""
    state: dict[str, Any] = {}

    def is_over() -> bool:
        state.update(server.client.get(f"/api/jobs/{job}").json())
        return state["state"] not in ("waiting", "running")

    until(is_over)
    return state


def exported(server: Running, name: str, body: dict[str, Any]) -> tuple[str, bytes]:
    """The name and the bytes of an export."""
    begun = server.client.post(f"/api/videos/{name}/export", json=body)
    assert begun.status_code == 202, begun.text
    job = begun.json()["job"]
    state = ended(server, job)
    assert state["state"] == "done", state
    assert state["done"] == state["total"] > 0
    reply = server.client.get(f"/api/jobs/{job}/file")
    assert state["file"] in reply.headers["content-disposition"]
    return state["file"], reply.content


@pytest.mark.parametrize("format", [*FORMATS, "effect"])
def test_every_format_of_the_command_line_is_exported(
    server: Running, tracked: str, format: str, tmp_path: Path
) -> None:
    body = {"format": format, "effect": {"name": "outline"} if format == "effect" else None}
    file, data = exported(server, tracked, body)

    if file.endswith(".mp4"):
        path = tmp_path / "x.mp4"
        path.write_bytes(data)
        with open_frames(path) as frames:
            assert (frames.length, frames.size_hw) == (3, (300, 450))
    elif file.endswith(".zip"):
        names = zipfile.ZipFile(io.BytesIO(data)).namelist()
        assert len([name for name in names if PurePath(name).name.startswith("0000")]) == 3
    else:
        assert len(data) > 100
        has_names = format not in ("mot", "mots")  # numbers alone
        assert (b"cup" in data) is has_names


def test_a_coco_export_holds_the_tracked_masks(server: Running, tracked: str) -> None:
    _, data = exported(server, tracked, {"format": "coco"})

    found = json.loads(data)
    known = masks(server, tracked, 0, 2)
    assert [shape["segmentation"]["counts"] for shape in found["annotations"]] == [
        known[frame, 1] for frame in range(3)
    ]
    assert found["categories"][0]["name"] == "cup"


def test_a_davis_export_has_the_object_in_its_pixels(server: Running, tracked: str) -> None:
    _, data = exported(server, tracked, {"format": "davis"})

    archive = zipfile.ZipFile(io.BytesIO(data))
    labels = np.asarray(Image.open(io.BytesIO(archive.read("00001.png"))))
    counts = masks(server, tracked, 1, 1)[1, 1]
    assert np.array_equal(labels == 1, rle.decode({"size": [300, 450], "counts": counts}))


def test_an_effect_is_in_the_video(server: Running, tracked: str, tmp_path: Path) -> None:
    effect = {"name": "colour", "color": "#ff0000", "opacity": 1}
    _, data = exported(server, tracked, {"format": "effect", "effect": effect})

    path = tmp_path / "x.mp4"
    path.write_bytes(data)
    with open_frames(path) as frames:
        middle = frames.frame(2)[150:160, 110:120].reshape(-1, 3).mean(0)
    assert middle[0] > 200
    assert middle[1] < 60


def test_bad_exports_are_refused(server: Running, tracked: str) -> None:
    for body in (
        {"format": "gif"},
        {"format": "effect"},
        {"format": "effect", "effect": {"name": "sparkle"}},
        {"format": "effect", "effect": {"name": "blur", "strength": 1000}},
    ):
        reply = server.client.post(f"/api/videos/{tracked}/export", json=body)
        assert (reply.status_code, error_of(reply)["code"]) == (400, "bad_input")
    assert server.client.get("/api/jobs/x").status_code == 404
    assert server.client.get("/api/jobs/x/file").status_code == 404


def test_an_export_of_nothing_fails_in_a_sentence(server: Running) -> None:
    name = video_id(server.client)
    job = server.client.post(f"/api/videos/{name}/export", json={"format": "coco"}).json()["job"]
    state = ended(server, job)

    assert state["state"] == "failed"
    assert state["message"] == "there is nothing to export"
    assert server.client.get(f"/api/jobs/{job}/file").status_code == 409


def test_a_session_goes_on_elsewhere(server: Running, tracked: str, tmp_path: Path) -> None:
    file = server.client.get(f"/api/videos/{tracked}/session")
    assert file.headers["content-type"] == "application/zip"
    video = (server.service.options.folder / tracked / "upload").read_bytes()
    before = server.client.get(f"/api/videos/{tracked}").json()

    with running(tmp_path) as other:
        made = other.client.post(
            "/api/videos?session", files={"file": ("c.mp4", video), "session": file.content}
        )
        assert made.status_code == 201, made.text
        name = made.json()["id"]
        assert made.json()["objects"] == before["objects"]
        assert masks(other, name, 0, 9) == masks(server, tracked, 0, 9)
        track(other, name, start=3, frames=1)
        assert (3, 1) in masks(other, name, 0, 9)


def test_damaged_session_files_are_refused_and_leave_nothing(
    server: Running, tracked: str, tmp_path: Path
) -> None:
    good = server.client.get(f"/api/videos/{tracked}/session").content
    video = (server.service.options.folder / tracked / "upload").read_bytes()
    parts = {name: zipfile.ZipFile(io.BytesIO(good)).read(name) for name in zipfile.ZipFile(
        io.BytesIO(good)
    ).namelist()}  # fmt: skip

    def packed(method: int = zipfile.ZIP_STORED, /, **changed: bytes) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as file:
            for name, data in {**parts, **changed}.items():
                file.writestr(name, data)
        return buffer.getvalue()

    def document(**changed: Any) -> bytes:
        found = {**json.loads(parts["document.json"]), **changed}
        return packed(**{"document.json": json.dumps(found).encode()})

    first = parts["masks.jsonl"].partition(b"\n")[0] + b"\n"
    deflated = bytearray(packed(zipfile.ZIP_DEFLATED))
    deflated[60:90] = b"\xff" * 30
    directory = packed(**{f"{n:0100}": b"" for n in range(8000)})
    operation = {"kind": "prompt", "object": 1, "points": [[1, 1]], "labels": [1]}
    wrong = [
        b"PK\x03\x04", good[: len(good) // 2], b"nothing",
        packed(**{"../evil": b"x"}),
        packed(**{"document.json": b"{}x"}),
        packed(**{"document.json": b'{"version":1,"state":"../../x"}'}),
        packed(**{"masks.jsonl": b"nothing\n"}),
        packed(**{"masks.jsonl": parts["masks.jsonl"].replace(b'"counts":"', b'"counts":"0')}),
        packed(**{"state.safetensors": b"\x08" + bytes(20)}),
        packed(**{"masks.jsonl": first.replace(b'"frame":0', b'"frame":2147483647')}),
        packed(**{"masks.jsonl": first.replace(b'"object":1', b'"object":2')}),
        packed(zipfile.ZIP_DEFLATED, **{"masks.jsonl": b" " * 100_000_000}),
        packed(zipfile.ZIP_LZMA), packed(zipfile.ZIP_BZIP2), bytes(deflated), directory,
        document(pending=[operation] * 1000),
        document(objects=[{"id": number} for number in range(1, 10_000)]),
        document(objects=[{"id": 1}, {"id": 1}]),
    ]  # fmt: skip
    with running(tmp_path) as other:
        for data in wrong:
            reply = other.client.post("/api/videos?session", files={"file": video, "session": data})
            assert (reply.status_code, error_of(reply)["code"]) == (400, "bad_input"), data[:40]
        assert other.client.get("/api/sessions").json() == []
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".new")] == []


@pytest.fixture
def scene(rng: np.random.Generator) -> tuple[Any, Painted]:
    pixels = rng.integers(0, 256, (60, 80, 3), np.uint8)
    mask = np.zeros((60, 80), np.bool_)
    mask[20:40, 30:50] = True
    return pixels, Painted(mask, (0, 0, 255))


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("target", ["object", "background"])
def test_an_effect_changes_its_target_alone(
    scene: tuple[Any, Painted], name: str, target: Any
) -> None:
    pixels, painted = scene
    drawn = apply(Effect(name, target), pixels, [painted])[:, :, :3]

    where = painted.mask if target == "object" else ~painted.mask
    changed = (drawn != pixels).any(axis=2)
    if name == "outline":  # around the object, whatever the target
        assert changed.any()
        assert not (changed & painted.mask).any()
    else:
        assert changed[where].mean() > 0.5
        assert not changed[~where].any()


def test_a_cutout_is_transparent_and_green_in_a_video(scene: tuple[Any, Painted]) -> None:
    pixels, painted = scene
    cut = apply(Effect("cutout"), pixels, [painted])
    assert np.array_equal(cut[:, :, 3] > 0, painted.mask)

    shown = apply_opaque(Effect("cutout"), pixels, [painted])
    assert (shown[~painted.mask] == (0, 177, 64)).all()
    blue = apply_opaque(Effect("cutout", color="#0000ff"), pixels, [painted])
    assert (blue[~painted.mask] == (0, 0, 255)).all()


def test_effects_without_objects_and_out_of_range(scene: tuple[Any, Painted]) -> None:
    pixels, _ = scene
    for name in EFFECTS:
        assert apply(Effect(name), pixels, []).shape[:2] == pixels.shape[:2]
    with pytest.raises(OptionError, match="out of range"):
        apply(Effect("pixelate", size=1000), pixels, [])
