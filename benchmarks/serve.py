"""The server: how soon a click is answered, and what happens when too many ask.

    python benchmarks/serve.py [--jobs clicks,track,overload,memory] [--seconds 10]

`clicks` and `track` run `samgraph serve` with the built-in model. `overload` and `memory` are about
the gate and the HTTP side: the model is one that sleeps for 50 ms, or answers at once.
"""

import argparse
import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
CLICK = {"points": [[220, 150]], "labels": [1]}
CUP = {"frame": 0, "object": 1, "points": [[110, 155]], "labels": [1]}
WORKING, WAITING, SERVICE_SECONDS = 4, 4, 0.05

_CHILD = """
import sys, time
from pathlib import Path
import samgraph
from samgraph.serve import image_sessions, running
from samgraph.serve.options import ServeOptions
from samgraph.serve.schema import Mask, MaskReply, PredictReply

seconds, working, waiting, leak = (float(text) for text in sys.argv[2:6])
reply = PredictReply([MaskReply(Mask((1, 1), "1"), 1.0, (0, 0, 1, 1), 1)], 0, "t")
leaked = []

def sleep(self, body):
    time.sleep(seconds)
    if leak:
        leaked.append(bytearray(int(leak)))
    return reply

image_sessions.ImageSession.predict = sleep
options = ServeOptions(folder=Path(sys.argv[1]), port=0, working=int(working), waiting=int(waiting))
running.run(samgraph.load(), options, lambda address: print("listens on", address, flush=True))
"""


@contextmanager
def server(folder: str, command: list[str]) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its address and process id."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert child.stdout is not None
        url = child.stdout.readline().split()[-1]
        while httpx.get(f"{url}readyz").status_code != 200:
            time.sleep(0.05)
        yield url, child.pid
    finally:
        child.terminate()
        child.wait(40)


@contextmanager
def real(folder: str) -> Iterator[tuple[str, int]]:
    """`samgraph serve` with the built-in model."""
    command = [sys.executable, "-m", "samgraph", "serve", "--port", "0", "--folder", folder]
    with server(folder, command) as found:
        yield found


@contextmanager
def fake(
    folder: str, seconds: float, working: int, waiting: int, leak: int = 0
) -> Iterator[tuple[str, int]]:
    """A server whose model sleeps; `leak` bytes of every request are kept."""
    numbers = [str(number) for number in (seconds, working, waiting, leak)]
    with server(folder, [sys.executable, "-c", _CHILD, folder, *numbers]) as found:
        yield found


def milliseconds(function: Any) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    reply = function()
    assert reply.is_success, reply.text
    return 1000 * (time.perf_counter() - start)


def percentile(values: list[float], share: float) -> float:
    """The value that a share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread(values: list[float]) -> str:
    """Median, p95 and the worst."""
    worst = f"p95 {percentile(values, 0.95):.0f}, worst {max(values):.0f} ms"
    return f"median {statistics.median(values):.0f} ms, {worst} of {len(values)}"


def clicks(rounds: int) -> None:
    """A picture is dropped and clicked on; further clicks."""
    data = (ROOT / "docs" / "media" / "coffee.jpg").read_bytes()
    first, further = [], []
    with tempfile.TemporaryDirectory() as folder, real(folder) as (url, _):
        for _ in range(rounds):
            with httpx.Client(base_url=url, timeout=60) as client:
                start = time.perf_counter()
                name = client.post("/api/images", content=data).json()["id"]
                client.post(f"/api/images/{name}/predict", json=CLICK).raise_for_status()
                first.append(1000 * (time.perf_counter() - start))
                path = f"/api/images/{name}/predict"
                for number in range(10):
                    body = {"points": [[100 + 30 * number, 150]], "labels": [1]}
                    further.append(milliseconds(partial(client.post, path, json=body)))
    print(f"upload and first click      {spread(first)}")
    print(f"further clicks              {spread(further)}")


def track(rounds: int) -> None:
    """Clicks on a video while it is tracked: on frames that were not shown before, and again."""
    fresh, again = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        real(folder) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        name = client.post("/api/videos?sample=cup").json()["id"]
        client.post(f"/api/videos/{name}/prompts", json=CUP).raise_for_status()
        client.post(f"/api/videos/{name}/track", json={"start": 0}).raise_for_status()
        time.sleep(3)
        for number in range(rounds):
            body = CUP | {"object": 2, "frame": 47 - number, "points": [[300, 60]]}
            path = f"/api/videos/{name}/prompts"
            fresh.append(milliseconds(partial(client.post, path, json=body)))
            time.sleep(0.13)
            body = body | {"points": [[310, 70]]}
            again.append(milliseconds(partial(client.post, path, json=body)))
            client.delete(f"/api/videos/{name}/objects/2")
            time.sleep(0.17)
        state = client.get(f"/api/videos/{name}").json()["tracking"]
        print(f"the track ran all the while: {state is not None}")
        client.delete(f"/api/videos/{name}/track")
    print(f"click in a track, new frame {spread(fresh)}")
    print(f"click in a track, again     {spread(again)}")


def overload(seconds: float) -> None:
    """Twice as many requests as can be served, and health checks beside them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        fake(folder, SERVICE_SECONDS, WORKING, WAITING) as (url, pid),
    ):
        capacity = asyncio.run(_capacity(url, seconds / 2))
        print(f"capacity                    {capacity:.1f} per second, {WORKING} at a time")
        for times in (2, 10):
            print(f"offered {times} x {capacity:.0f} per second for {seconds:g} s")
            asyncio.run(_offer(url, times * capacity, seconds, capacity, pid))


class Client:
    """HTTP over kept connections with next to no work: the machine is to be the server's."""

    def __init__(self, url: str) -> None:
        self._host, port = url.removeprefix("http://").rstrip("/").split(":")
        self._port = int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, line: str, body: bytes = b"") -> tuple[int, bytes, float]:
        """The status, the head of the reply, and milliseconds."""
        start = time.perf_counter()
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection(self._host, self._port)
        head = f"{line} HTTP/1.1\r\nhost: {self._host}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        try:
            found = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:  # it was idle for too long
            writer.close()
            return await self.ask(line, body)
        length = int(found.lower().split(b"content-length: ")[1].split(b"\r")[0])
        await reader.readexactly(length)
        self._idle.append((reader, writer))
        return int(found.split()[1]), found, 1000 * (time.perf_counter() - start)

    def close(self) -> None:
        """Let go of all connections."""
        for _, writer in self._idle:
            writer.close()


async def _capacity(url: str, seconds: float) -> float:
    """Replies per second to as many clients as there are places, each asking again at once."""
    name = httpx.post(f"{url}api/images?sample=cat").json()["id"]
    client, body = Client(url), json.dumps(CLICK).encode()
    began, served = time.perf_counter(), 0

    async def ask() -> None:
        nonlocal served
        while time.perf_counter() - began < seconds:
            status, _, _ = await client.ask(f"POST /api/images/{name}/predict", body)
            served += status == 200

    await asyncio.gather(*(ask() for _ in range(WORKING)))
    client.close()
    return served / (time.perf_counter() - began)


async def _offer(url: str, rate: float, seconds: float, capacity: float, pid: int) -> None:
    served: list[float] = []
    refused: list[float] = []
    other: list[int] = []
    health: list[float] = []
    name = httpx.post(f"{url}api/images?sample=cat").json()["id"]
    before, client, body = resident(pid), Client(url), json.dumps(CLICK).encode()

    async def ask() -> None:
        status, head, taken = await client.ask(f"POST /api/images/{name}/predict", body)
        if status == 200:
            served.append(taken)
        elif status == 503 and b"retry-after" in head:
            refused.append(taken)
        else:
            other.append(status)

    async def check() -> None:
        status, _, taken = await client.ask("GET /healthz")
        health.append(taken if status == 200 else math.inf)

    began, tasks, number = time.perf_counter(), [], 0
    while (now := time.perf_counter() - began) < seconds:
        while number < now * rate:
            tasks.append(asyncio.create_task(ask()))
            if number % 20 == 0:
                tasks.append(asyncio.create_task(check()))
            number += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    taken = time.perf_counter() - began
    client.close()
    good = 100 * len(served) / (capacity * taken)
    print(f"  goodput                   {good:.1f} % of capacity, {len(served)} served")
    print(f"  served                    {spread(served)}")
    fast = f"median {statistics.median(refused):.0f} ms, p99 {percentile(refused, 0.99):.0f} ms"
    print(f"  503                       {fast} of {len(refused)}")
    fine = sum(value < 1000 for value in health)
    print(f"  health                    {fine} of {len(health)}, worst {max(health):.0f} ms")
    print(f"  other replies             {len(other)}; memory {resident(pid) - before:+.1f} MB")


def memory(requests: int) -> None:
    """What 10,000 requests leave in memory, and that a leak of 10 KB each would show."""
    for leak in (0, 10_000):
        with tempfile.TemporaryDirectory() as folder, fake(folder, 0, 4, 64, leak) as (url, pid):
            asyncio.run(_ask(url, requests // 5))
            before = resident(pid)
            asyncio.run(_ask(url, requests))
            grown = resident(pid) - before
            what = "a planted leak of 10 KB" if leak else "no leak"
            print(f"{requests} requests, {what:24} {grown:+.1f} MB of {before:.0f}")


async def _ask(url: str, requests: int) -> None:
    name = httpx.post(f"{url}api/images?sample=cat").json()["id"]
    client, body = Client(url), json.dumps(CLICK).encode()

    async def some(count: int) -> None:
        for _ in range(count):
            await client.ask(f"POST /api/images/{name}/predict", body)

    await asyncio.gather(*(some(requests // 8) for _ in range(8)))
    client.close()


def resident(pid: int) -> float:
    """The resident memory of a process, in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    """Run the jobs that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", default="clicks,track,overload,memory")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args()
    for job in arguments.jobs.split(","):
        {
            "clicks": lambda: clicks(arguments.rounds),
            "track": lambda: track(arguments.rounds),
            "overload": lambda: overload(arguments.seconds),
            "memory": lambda: memory(arguments.requests),
        }[job]()


if __name__ == "__main__":
    main()
