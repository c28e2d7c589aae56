"""The server as a process: its address, signals, and a kill in the middle of a track."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from samgraph.serve.options import ServeOptions
from samgraph.serve.running import bind
from tests.serve.serving import SECONDS
from tests.serve.test_videos import CUP, library_masks

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def process(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """`samgraph serve` on a free port; killed at the end if it still runs."""
    command = [sys.executable, "-m", "samgraph", "serve", "--port", "0", "--folder", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    child = subprocess.Popen(
        [*command, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.startswith("samgraph listens on http://127.0.0.1:"), line
        with httpx.Client(base_url=line.split()[-1], timeout=SECONDS, trust_env=False) as client:
            yield child, client
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def progress(client: httpx.Client, name: str, until: int) -> dict[int, Any]:
    """The frames that were acknowledged by events, up to so many of them."""
    frames: dict[int, Any] = {}
    with client.stream("GET", f"/api/videos/{name}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line[6:])
                frames[event["frame"]] = event
                if event["done"] >= until:
                    return frames
    return frames


def masks(client: httpx.Client, name: str) -> dict[tuple[int, int], str]:
    reply = client.get(f"/api/videos/{name}/masks", params={"from": 0, "to": 63})
    return {
        (frame["frame"], obj["id"]): obj["rle"]["counts"]
        for frame in reply.json()["frames"]
        for obj in frame["objects"]
    }


def test_a_kill_in_a_track_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    with process(folder) as (child, client):
        name = client.post("/api/videos?sample=cup").json()["id"]
        client.post(f"/api/videos/{name}/prompts", json=CUP)
        client.patch(f"/api/videos/{name}/objects/1", json={"name": "cup"})
        client.post(f"/api/videos/{name}/track", json={"start": 0})
        seen = progress(client, name, 5)
        other = CUP | {"object": 2, "points": [[300, 60]], "frame": 3}
        second = client.post(f"/api/videos/{name}/prompts", json=other).json()["objects"]
        child.send_signal(signal.SIGKILL)
        child.wait(SECONDS)

    with process(folder) as (_, client):
        found = client.get(f"/api/videos/{name}").json()
        assert [(obj["id"], obj["name"], obj["prompts"]) for obj in found["objects"]] == [
            (1, "cup", [0]),
            (2, None, [3]),
        ]
        assert found["tracking"] is None
        assert found["interrupted"] == [{"first": 0, "last": 47, "is_reverse": False}]
        kept = masks(client, name)
        for frame in seen:
            assert (frame, 1) in kept
        mask = next(obj for obj in second if obj["id"] == 2)
        assert kept[3, 2] == mask["rle"]["counts"]
        client.delete(f"/api/videos/{name}/objects/2")
        start = max(frame for frame, obj in kept if obj == 1) + 1
        begun = client.post(f"/api/videos/{name}/track", json={"start": start, "frames": 2})
        progress(client, name, begun.json()["total"])
        expected = library_masks(folder, start + 2)
        found = masks(client, name)
        assert found == expected
        assert {key: mask for key, mask in kept.items() if key[1] == 1}.items() <= found.items()


def test_replies_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    """asyncio sets TCP_NODELAY on connections of sockets that name their protocol."""
    with bind(ServeOptions(port=0, folder=tmp_path)) as bound:
        assert bound.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_track_after_its_frame_and_saves(
    tmp_path: Path, by: signal.Signals
) -> None:
    folder = tmp_path / "sessions"
    with process(folder) as (child, client):
        name = client.post("/api/videos?sample=cup").json()["id"]
        client.post(f"/api/videos/{name}/prompts", json=CUP)
        client.post(f"/api/videos/{name}/track", json={"start": 0})
        seen = progress(client, name, 3)
        child.send_signal(by)
        assert child.wait(SECONDS) == 0

    with process(folder) as (_, client):
        found = client.get(f"/api/videos/{name}").json()
        assert found["interrupted"]
        assert {(frame, 1) for frame in seen} <= set(masks(client, name))


def test_bad_options_are_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    for more, text in (
        (["--host", "0.0.0.0"], "can be reached by others"),
        (["--port", "99999"], "no such port"),
        (["--model", "nothing"], "nothing"),
        (["--max-upload-mb", "-1"], "more than 0"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "samgraph", "serve", "--folder", str(tmp_path), *more],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        assert done.returncode == 2, done.stderr
        assert text in done.stderr
        assert "Traceback" not in done.stderr
