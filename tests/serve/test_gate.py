"""The gate in front of the model, and the turns of clicks and frames."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from samgraph.serve.gate import Gate, Turns
from samgraph.serve.image_sessions import ImageSession
from samgraph.serve.replies import RequestError
from tests.serve.fake_models import Slow
from tests.serve.serving import SECONDS, Running, connected, error_of, image_id, running, until

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
        asked = [pool.submit(httpx.post, url, json=CLICK, timeout=SECONDS) for _ in range(12)]
        until(lambda: sum(job.done() for job in asked) == 7 and slow.running == 2)
        for _ in range(20):  # while nothing else is answered
            assert small.client.get("/healthz").status_code == 200
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
        replies = list(pool.map(lambda _: httpx.post(url, json=CLICK, timeout=SECONDS), range(40)))

    assert {reply.status_code for reply in replies} == {200}


def test_who_waits_too_long_is_given_up_and_never_run(tmp_path: Path, slow: Slow) -> None:
    with running(tmp_path, working=1, waiting=4, queue_seconds=0.4) as server:
        name = image_id(server.client)
        slow.hold.clear()
        with ThreadPoolExecutor(2) as pool:
            url = f"{server.url}/api/images/{name}/predict"
            first = pool.submit(httpx.post, url, json=CLICK, timeout=SECONDS)
            until(lambda: slow.running)
            second = pool.submit(httpx.post, url, json=CLICK, timeout=SECONDS).result()
            slow.hold.set()
            assert first.result().status_code == 200

    assert (second.status_code, error_of(second)["code"]) == (504, "expired")
    assert slow.calls == 1


def test_a_client_that_leaves_frees_its_place(tmp_path: Path, slow: Slow) -> None:
    with running(tmp_path, working=1, waiting=1) as server:
        name = image_id(server.client)
        slow.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            path = f"/api/images/{name}/predict"
            first = pool.submit(httpx.post, server.url + path, json=CLICK, timeout=SECONDS)
            until(lambda: slow.running)
            with connected(server) as connection:
                head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\n\r\n"
                connection.sendall(head.encode() + b"{}")
                until(lambda: server.service.gate.waiting == 1)
            until(lambda: server.service.gate.waiting == 0)
            assert slow.running == 1  # what was at work still is
            slow.hold.set()
            assert first.result().status_code == 200
    assert slow.calls == 1


def test_a_place_is_handed_over_even_if_its_owner_is_cancelled() -> None:
    async def scenario() -> None:
        gate, is_done = Gate(1, 5, 1000), asyncio.Event()
        order: list[str] = []

        async def ask(name: str) -> None:
            async with gate.admitted():
                order.append(name)
                await is_done.wait()

        first, second, third = [
            asyncio.create_task(ask(name)) for name in ("first", "second", "third")
        ]
        while gate.waiting < 2:
            await asyncio.sleep(0)
        second.cancel()
        is_done.set()
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


def test_a_click_comes_before_the_next_frame() -> None:
    turns, log, may_end = Turns(patience=SECONDS), list[str](), threading.Event()

    def frame(number: int) -> None:
        with turns.frame():
            log.append(f"frame {number}")
            assert may_end.wait(SECONDS)

    def click() -> None:
        with turns.click():
            log.append("click")

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(frame, 1)]
        until(lambda: log == ["frame 1"])
        jobs += [pool.submit(click), pool.submit(click)]
        until(lambda: turns.clicks == 2)
        jobs.append(pool.submit(frame, 2))
        assert log == ["frame 1"]
        may_end.set()
        for job in jobs:
            job.result(SECONDS)
    assert log == ["frame 1", "click", "click", "frame 2"]


def test_clicks_without_end_do_not_stop_a_track() -> None:
    turns, frames = Turns(patience=0.02), list[int]()

    def track() -> None:
        for number in range(3):
            with turns.frame():
                frames.append(number)

    with turns.click(), ThreadPoolExecutor(1) as pool:
        pool.submit(track).result(SECONDS)
    assert frames == [0, 1, 2]
