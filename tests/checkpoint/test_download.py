import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from samgraph.checkpoint import RELEASES, Release, download, transfer
from samgraph.checkpoint.download import cached, fetch
from samgraph.errors import CheckpointError, DownloadError
from tests.checkpoint.serving import Behaviour, serving

CONTENT = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8).tobytes()
OTHER = CONTENT[::-1]
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RELEASE = Release("sam2-test", "test.pt", SHA256, len(CONTENT) // 4, "http://127.0.0.1:9/test.pt")


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(transfer, "TIMEOUT_SECONDS", 5.0)
    monkeypatch.setattr(transfer, "CHUNK", 16_384)
    for name in ("SAMGRAPH_CACHE", "SAMGRAPH_MIRROR", "SAMGRAPH_OFFLINE", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir() if not item.name.endswith(".lock"))


def assert_fetched(folder: Path, behaviour: Behaviour) -> None:
    with serving(behaviour) as address:
        path = fetch(RELEASE, cache_dir=folder, mirror=address)
    assert path.read_bytes() == CONTENT
    assert names(folder) == ["test.pt"]


def test_a_file_is_fetched_once_and_then_found(tmp_path: Path) -> None:
    behaviour = Behaviour(CONTENT)
    seen: list[tuple[int, int | None]] = []
    assert cached(RELEASE, cache_dir=tmp_path) is None

    with serving(behaviour) as address:
        for _ in range(2):
            path = fetch(
                RELEASE, cache_dir=tmp_path, mirror=address, progress=lambda *now: seen.append(now)
            )

    assert path == tmp_path / "test.pt" == cached(RELEASE, cache_dir=tmp_path)
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["test.pt"]
    assert len(behaviour.requests) == 1
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_broken_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    behaviour = Behaviour(CONTENT, stops=[100_000, 50_000])

    assert_fetched(tmp_path, behaviour)

    ranges = [request.get("Range") for request in behaviour.requests]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert behaviour.requests[1]["If-Range"] == '"one"'


def test_an_earlier_run_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "test.pt.part").write_bytes(CONTENT[:200_000])
    behaviour = Behaviour(CONTENT, tag=None)

    assert_fetched(tmp_path, behaviour)

    assert behaviour.requests[0]["Range"] == "bytes=200000-"


def test_a_whole_part_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "test.pt.part").write_bytes(CONTENT)

    assert fetch(RELEASE, cache_dir=tmp_path).read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_is_read_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "test.pt.part").write_bytes(OTHER[:200_000])

    assert_fetched(tmp_path, Behaviour(CONTENT, ranges=False))


def test_changed_content_is_noticed_by_its_tag(tmp_path: Path) -> None:
    (tmp_path / "test.pt.part").write_bytes(OTHER[:200_000])
    (tmp_path / "test.pt.part.tag").write_text('"zero"')
    behaviour = Behaviour(CONTENT)

    assert_fetched(tmp_path, behaviour)

    assert len(behaviour.requests) == 1


@pytest.mark.parametrize("kept", [200_000, len(CONTENT), len(CONTENT) + 5])
def test_changed_content_without_a_tag_is_noticed_by_the_hash(tmp_path: Path, kept: int) -> None:
    (tmp_path / "test.pt.part").write_bytes((OTHER + OTHER)[:kept])
    behaviour = Behaviour(CONTENT, tag=None)

    assert_fetched(tmp_path, behaviour)

    assert len(behaviour.requests) == 2


def test_an_answer_to_another_question_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "test.pt.part").write_bytes(CONTENT[:200_000])

    assert_fetched(tmp_path, Behaviour(CONTENT, wrong_start=True))


def test_an_unannounced_length_is_no_obstacle(tmp_path: Path) -> None:
    assert_fetched(tmp_path, Behaviour(CONTENT, announce_length=False))


def test_a_busy_server_is_asked_again(tmp_path: Path) -> None:
    behaviour = Behaviour(CONTENT, statuses=[503, 429, 200])

    assert_fetched(tmp_path, behaviour)

    assert len(behaviour.requests) == 3


def refusal(folder: Path, behaviour: Behaviour) -> str:
    with serving(behaviour) as address, pytest.raises(DownloadError) as caught:
        fetch(RELEASE, cache_dir=folder, mirror=address)
    assert isinstance(caught.value, CheckpointError)
    assert cached(RELEASE, cache_dir=folder) is None
    return str(caught.value)


def test_a_wrong_file_is_refused_and_not_kept(tmp_path: Path) -> None:
    message = refusal(tmp_path, Behaviour(OTHER))

    assert "is not the file that was promised" in message
    assert hashlib.sha256(OTHER).hexdigest() in message
    assert SHA256 in message
    assert names(tmp_path) == []


def test_a_missing_file_is_not_asked_for_again(tmp_path: Path) -> None:
    behaviour = Behaviour(CONTENT, statuses=[404])

    assert "the answer 404" in refusal(tmp_path, behaviour)
    assert len(behaviour.requests) == 1


def test_a_server_that_stays_busy_is_given_up(tmp_path: Path) -> None:
    behaviour = Behaviour(CONTENT, statuses=[503] * 50)

    assert "the server answered 503" in refusal(tmp_path, behaviour)
    assert len(behaviour.requests) == download.TRIES


def test_a_server_that_sends_nothing_is_given_up(tmp_path: Path) -> None:
    behaviour = Behaviour(CONTENT, stops=[0] * 50)

    assert "stopped at 0 of 300,000" in refusal(tmp_path, behaviour)
    assert len(behaviour.requests) == download.TRIES


@pytest.mark.parametrize("announced", [True, False])
def test_an_endless_file_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    monkeypatch.setattr(download, "SLACK_BYTES", 0)
    behaviour = Behaviour(CONTENT * 4, announce_length=announced)

    assert "expected: at most 600,000" in refusal(tmp_path, behaviour)
    assert names(tmp_path) == []


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_redirects_do_not_leave_the_web(tmp_path: Path, target: str) -> None:
    assert "cannot be fetched" in refusal(tmp_path, Behaviour(CONTENT, redirect=target))


def test_a_redirect_on_the_web_is_followed(tmp_path: Path) -> None:
    with serving(Behaviour(CONTENT)) as target:
        assert_fetched(tmp_path, Behaviour(CONTENT, redirect=f"{target}/elsewhere"))


@pytest.mark.parametrize(
    "mirror", ["file:///tmp", "ftp://x", "x", "http://", "http://a b", "//x", "http://me:word@x"]
)
def test_only_web_addresses_are_mirrors(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(DownloadError, match="is not an address to fetch from"):
        fetch(RELEASE, cache_dir=tmp_path, mirror=mirror)


def test_nobody_listening_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"cannot be fetched\n  got: .*refused"):
        fetch(RELEASE, cache_dir=tmp_path)


def test_the_environment_moves_the_cache_and_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMGRAPH_CACHE", str(tmp_path / "here"))
    with serving(Behaviour(CONTENT)) as address:
        monkeypatch.setenv("SAMGRAPH_MIRROR", f"{address}/deep/")
        assert fetch(RELEASE) == tmp_path / "here" / "checkpoints" / "test.pt"


def test_the_default_cache_belongs_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("platformdirs")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert "samgraph" in str(download.cache_folder())


class Disk(NamedTuple):
    """What `shutil.disk_usage` gives."""

    total: int
    used: int
    free: int


def test_too_small_a_disk_is_told_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: Disk(9, 9, 1000))

    assert "there is no room for `test.pt`" in refusal(tmp_path, Behaviour(CONTENT))


def test_a_disk_that_fills_up_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = transfer.Received.add

    def fill_up(received: transfer.Received, piece: bytes) -> None:
        add(received, piece)
        if received.count > 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(transfer.Received, "add", fill_up)
        assert "the disk is full" in refusal(tmp_path, Behaviour(CONTENT))
    assert (tmp_path / "test.pt.part").stat().st_size > 100_000
    assert_fetched(tmp_path, Behaviour(CONTENT))


def test_a_cache_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")

    with pytest.raises(DownloadError, match="cannot be written"):
        fetch(RELEASE, cache_dir=tmp_path / "cache")


CHILD = """
import sys
from samgraph.checkpoint import Release
from samgraph.checkpoint.download import fetch
from samgraph.errors import DownloadError
guard = sys.argv[1] == "guard"
if guard:
    def hook(event, arguments):
        if event.startswith("socket."):
            print("OPENED", event, flush=True)
    sys.addaudithook(hook)
release = Release("sam2-test", "test.pt", sys.argv[3], 75000, "http://127.0.0.1:9/test.pt")
try:
    print(fetch(release, cache_dir=sys.argv[2], mirror=sys.argv[4] or None))
except DownloadError as error:
    print(error)
"""


def start(mode: str, folder: Path, mirror: str, **extra: str) -> "subprocess.Popen[str]":
    source = Path(download.__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, mode, str(folder), SHA256, mirror],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source), **extra},
    )


def test_two_processes_fetch_a_file_once(tmp_path: Path) -> None:
    behaviour = Behaviour(CONTENT)

    with serving(behaviour) as address:
        children = [start("plain", tmp_path, address) for _ in range(2)]
        answers = [child.communicate(timeout=60)[0].strip() for child in children]

    assert answers == [str(tmp_path / "test.pt")] * 2
    assert len(behaviour.requests) == 1
    assert (tmp_path / "test.pt").read_bytes() == CONTENT


def test_offline_opens_no_socket_and_says_so(tmp_path: Path) -> None:
    offline = start("guard", tmp_path, "", SAMGRAPH_OFFLINE="1").communicate(timeout=60)[0]
    with serving(Behaviour(CONTENT)) as address:
        online = start("guard", tmp_path, address).communicate(timeout=60)[0]

    assert "`sam2-test` has not been downloaded, and samgraph is offline" in offline
    assert "OPENED" not in offline
    assert "OPENED socket.connect" in online  # the guard sees a connection when there is one


@pytest.mark.parametrize(
    ("value", "offline"), [("1", True), ("true", True), ("0", False), ("", False)]
)
def test_offline_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, offline: bool
) -> None:
    monkeypatch.setenv("SAMGRAPH_OFFLINE", value)

    assert download.is_offline() is offline
    assert download.is_offline(not offline) is not offline


def test_a_terminal_gets_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with serving(Behaviour(CONTENT)) as address:
        fetch(RELEASE, cache_dir=tmp_path, mirror=address)

    captured = capsys.readouterr()
    assert "sam2-test" in captured.err
    assert captured.out == ""


def test_released_addresses_are_accepted() -> None:
    accept: Callable[[str], str] = transfer.check_address

    assert [accept(release.address) for release in RELEASES]
