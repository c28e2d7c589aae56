"""32 clients at once get what one client would."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.serve.serving import SECONDS, image_id, running

CLIENTS, REQUESTS = 32, 96


def bodies(count: int) -> list[dict[str, Any]]:
    """Prompts of all kinds within 450 x 300 pixels."""
    rng, found = random.Random(5), []
    for number in range(count):
        points = [[rng.randrange(450), rng.randrange(300)] for _ in range(rng.randrange(1, 4))]
        body: dict[str, Any] = {"points": points, "labels": [1] + [0] * (len(points) - 1)}
        if number % 3 == 0:
            x, y = rng.randrange(200), rng.randrange(150)
            body = {"box": [x, y, x + 50 + rng.randrange(150), y + 40 + rng.randrange(100)]}
        found.append(body)
    return found


def test_replies_to_many_clients_are_bit_identical_to_a_serial_run(tmp_path: Path) -> None:
    with running(tmp_path, working=4, waiting=64) as server:
        names = [image_id(server.client, sample) for sample in ("cat", "coffee", "cat")]
        asked = [(names[i % 3], body) for i, body in enumerate(bodies(REQUESTS))]

        def ask(job: tuple[str, dict[str, Any]]) -> bytes:
            url = f"{server.url}/api/images/{job[0]}/predict"
            reply = httpx.post(url, json=job[1], timeout=SECONDS)
            assert reply.status_code == 200, reply.text
            return reply.content.rpartition(b',"refine"')[0]

        serial = [ask(job) for job in asked]
        with ThreadPoolExecutor(CLIENTS) as pool:
            parallel = list(pool.map(ask, asked))

    assert parallel == serial
    assert len(set(serial)) > REQUESTS // 2
