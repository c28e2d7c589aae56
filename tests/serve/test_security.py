"""Who may ask: tokens, origins, hosts, addresses."""

from pathlib import Path

import httpx
import pytest

from samgraph.errors import OptionError
from samgraph.serve.options import ServeOptions
from samgraph.serve.running import address
from tests.serve.serving import Running, error_of, running

TOKEN = "a-token-of-the-tests"


def test_a_token_is_needed_for_everything_but_health(tmp_path: Path) -> None:
    with running(tmp_path, token=TOKEN) as server:
        for path in ("/", "/api/info", "/metrics", "/openapi.json", "/static/index.html"):
            reply = server.client.get(path)
            assert (reply.status_code, error_of(reply)["code"]) == (401, "unauthorized"), path
            assert server.client.get(path, headers={"authorization": f"Bearer {TOKEN}"}).is_success
            wrong = server.client.get(path, headers={"authorization": f"Bearer {TOKEN}x"})
            assert wrong.status_code == 401
        assert server.client.get("/healthz").status_code == 200
        assert server.client.post("/api/images?sample=cat").status_code == 401


def test_the_page_opened_with_the_token_keeps_it_as_a_cookie(tmp_path: Path) -> None:
    with running(tmp_path, token=TOKEN) as server:
        reply = server.client.get(f"/?token={TOKEN}&image=1")
        assert (reply.status_code, reply.headers["location"]) == (303, "/?image=1")
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert server.client.get("/").status_code == 200
        assert server.client.get("/api/info").status_code == 200
        with httpx.Client(base_url=server.url, trust_env=False) as other:
            wrong = other.get("/?token=guess")
            assert wrong.status_code == 401
            assert "set-cookie" not in wrong.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_requests_from_other_sites_are_refused(server: Running, headers: dict[str, str]) -> None:
    reply = server.client.post("/api/images?sample=cat", headers=headers)

    assert (reply.status_code, error_of(reply)["code"]) == (403, "forbidden")
    assert server.client.get("/api/info", headers=headers).status_code == 200


def test_requests_of_the_page_are_taken(server: Running) -> None:
    headers = {"origin": server.url, "sec-fetch-site": "same-origin"}

    assert server.client.post("/api/images?sample=cat", headers=headers).status_code == 201


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "", "127.0.0.1.evil.example"]
)
def test_foreign_hosts_are_refused(server: Running, host: str) -> None:
    reply = server.client.get("/api/info", headers={"host": host})

    assert reply.status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:99", "127.0.0.1", "[::1]:80"])
def test_names_of_this_machine_are_taken(server: Running, host: str) -> None:
    assert server.client.get("/api/info", headers={"host": host}).status_code == 200


def test_no_other_site_may_read_a_reply(server: Running) -> None:
    reply = server.client.get("/api/info", headers={"origin": "https://evil.example"})

    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.com"])
def test_other_addresses_need_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="can be reached by others"):
        ServeOptions(host=host, folder=tmp_path)
    assert not ServeOptions(host=host, folder=tmp_path, token=TOKEN).is_local


def test_the_address_of_the_page(tmp_path: Path) -> None:
    here = ServeOptions(folder=tmp_path)
    assert address(here, 8001) == "http://127.0.0.1:8001/"
    all_of_them = ServeOptions(host="::", folder=tmp_path, token=TOKEN)
    assert address(all_of_them, 80) == f"http://127.0.0.1:80/?token={TOKEN}"
    assert TOKEN not in repr(all_of_them)


@pytest.mark.parametrize(
    "wrong",
    [{"port": 70000}, {"token": "short"}, {"working": 0}, {"waiting": -1}, {"max_upload_mb": 0}],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        ServeOptions(folder=tmp_path, **wrong)  # type: ignore[arg-type]
