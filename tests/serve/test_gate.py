"""The gate in front of the model, and the turns of clicks and frames."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from samgraph.serve.gate import Gate, Turns
from samgraph.serve.image_sessions import ImageSession
from samgraph.serve.replies import RequestError
from tests.serve.fake_models import Slow
from tests.serve.serving import Running, error_of, image_id, running

CLICK = {"points": [[220, 150]]}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    fake = Slow(0.02)
    monkeypatch.setattr(ImageSession, "predict", lambda self, body: fake(self, body))
    return fake


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, working=2, waiting=3) as server:
        yield server


def test_more_than_fit_are_refused_and_health_is_not(small: Running, slow: Slow) -> None:
    name = image_id(small.client)
    slow.hold.clear()
    with ThreadPoolExecutor(16) as pool:
        url = f"{small.url}/api/images/{name}/predict"
        asked = [pool.submit(httpx.post, url, json=CLICK, timeout=30) for _ in range(12)]
        while sum(job.done() for job in asked) < 7:
            time.sleep(0.01)
        assert slow.running == 2
        began = time.monotonic()
        for _ in range(20):
            assert small.client.get("/healthz").status_code == 200
        assert time.monotonic() - began < 2
        assert "samgraph_waiting 3.0" in small.client.get("/metrics").text
        slow.hold.set()
        replies = [job.result() for job in asked]

    refused = [reply for reply in replies if reply.status_code == 503]
    assert sorted(reply.status_code for reply in replies) == [200] * 5 + [503] * 7
    assert {error_of(reply)["code"] for reply in refused} == {"busy"}
    assert all(1 <= int(reply.headers["retry-after"]) <= 60 for reply in refused)
    assert slow.most == 2
    assert 'samgraph_shed_total{reason="busy"} 7.0' in small.client.get("/metrics").text


def test_all_that_fit_are_served(small: Running, slow: Slow) -> None:
    name = image_id(small.client)
    with ThreadPoolExecutor(5) as pool:
        url = f"{small.url}/api/images/{name}/predict"
        replies = list(pool.map(lambda _: httpx.post(url, json=CLICK), range(40)))

    assert {reply.status_code for reply in replies} == {200}


def test_who_waits_too_long_is_given_up_and_never_run(tmp_path: Path, slow: Slow) -> None:
    with running(tmp_path, working=1, waiting=4, queue_seconds=0.4) as server:
        name = image_id(server.client)
        slow.hold.clear()
        with ThreadPoolExecutor(2) as pool:
            url = f"{server.url}/api/images/{name}/predict"
            first = pool.submit(httpx.post, url, json=CLICK, timeout=30)
            while not slow.running:
                time.sleep(0.01)
            second = pool.submit(httpx.post, url, json=CLICK, timeout=30).result()
            slow.hold.set()
            assert first.result().status_code == 200

    assert (second.status_code, error_of(second)["code"]) == (504, "expired")
    assert slow.calls == 1


def test_a_client_that_leaves_frees_its_place(tmp_path: Path, slow: Slow) -> None:
    with running(tmp_path, working=1, waiting=1) as server:
        name = image_id(server.client)
        slow.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            url = f"{server.url}/api/images/{name}/predict"
            first = pool.submit(httpx.post, url, json=CLICK, timeout=30)
            while not slow.running:
                time.sleep(0.01)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(url, json=CLICK, timeout=0.2)
            began = time.monotonic()
            while server.service.gate.waiting and time.monotonic() - began < 5:
                time.sleep(0.01)
            assert time.monotonic() - began < 1
            slow.hold.set()
            assert first.result().status_code == 200
    assert slow.calls == 1


def test_a_place_is_handed_over_even_if_its_owner_is_cancelled() -> None:
    async def scenario() -> None:
        gate = Gate(1, 5, 10)
        order: list[str] = []

        async def ask(name: str, seconds: float) -> None:
            async with gate.admitted():
                order.append(name)
                await asyncio.sleep(seconds)

        first = asyncio.create_task(ask("first", 0.05))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(ask("second", 0))
        third = asyncio.create_task(ask("third", 0))
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.gather(first, third)
        assert order == ["first", "third"]
        assert (gate.working, gate.waiting) == (0, 0)

    asyncio.run(scenario())


def test_a_failure_at_work_frees_the_place() -> None:
    async def scenario() -> None:
        gate = Gate(1, 0, 10)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                async with gate.admitted():
                    raise ZeroDivisionError("planted")
        async with gate.admitted():
            with pytest.raises(RequestError, match="busy"):
                gate.check()

    asyncio.run(scenario())


def test_a_click_waits_for_one_frame_only() -> None:
    turns, log = Turns(patience=5), list[str]()
    stop = threading.Event()

    def track() -> None:
        while not stop.is_set():
            with turns.frame():
                log.append("frame")
                time.sleep(0.02)

    tracker = threading.Thread(target=track)
    tracker.start()
    try:
        for _ in range(5):
            time.sleep(0.05)
            before = len(log)
            with turns.click():
                assert len(log) - before <= 1
                inside = len(log)
                time.sleep(0.05)
                assert len(log) == inside  # no frame beside a click
    finally:
        stop.set()
        tracker.join()


def test_clicks_without_end_do_not_stop_a_track() -> None:
    turns, frames, stop = Turns(patience=0.05), list[int](), threading.Event()

    def click() -> None:
        while not stop.is_set():
            with turns.click():
                time.sleep(0.03)

    clickers = [threading.Thread(target=click) for _ in range(3)]
    for clicker in clickers:
        clicker.start()
    began = time.monotonic()
    for number in range(5):
        with turns.frame():
            frames.append(number)
    seconds = time.monotonic() - began
    stop.set()
    for clicker in clickers:
        clicker.join()
    assert seconds < 3
