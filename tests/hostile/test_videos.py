"""Videos from people who mean harm, and from disks that fail. Figures V1, V3 to V5.

    python test_videos.py LIST        opens every path in LIST and prints a line of JSON for each

V3 is in tests/media/test_video_damage.py, V5 in tests/media/test_video.py.
"""

import ctypes
import json
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import samgraph
from samgraph.errors import VideoError
from samgraph.media.video.frames import MissingFrameError, OnDamage, open_frames
from tests.media import video_making as making
from tests.peak import peak_bytes

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(samgraph.__file__).parents[1]
MOST_SECONDS = 10.0
MOST_BYTES = 512 << 20
MUTANTS = 300
FRAMES_READ = 120
CAUGHT = 86
FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
IN_OPEN, IN_NONBLOCK = 0x20, 0x800

Report = list[dict[str, Any]]


def use(path: str, on_damage: OnDamage) -> str:
    """Read a video forward and here and there; what came of it."""
    with open_frames(path, on_damage=on_damage, cache_frames=3) as source:
        length = source.length or 0
        for index in [*range(min(length, FRAMES_READ)), length - 1, length // 2, 0, length // 3]:
            try:
                source.frame(index)
            except MissingFrameError:
                continue
        damage = source.damage
        if length <= FRAMES_READ and damage.decoded + len(damage.missing) != length:
            return f"not every frame is accounted for: {damage!r}"
    return "damaged" if damage.is_damaged else "whole"


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """End the process if a video makes it do what it must not."""
    writes = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & WRITING)
    if writes or event.startswith(FORBIDDEN):
        os.write(2, f"FORBIDDEN {event} {arguments!r}\n".encode())
        os._exit(CAUGHT)


def child(paths: list[str]) -> None:
    """Open each path in both ways and print what came of it, how long it took, and the memory."""
    for number, path in enumerate(paths):
        line: dict[str, Any] = {"path": path, "message": ""}
        start = time.perf_counter()
        for on_damage in ("error", "skip"):
            try:
                line[on_damage] = use(path, on_damage)
            except VideoError as error:
                line |= {on_damage: "VideoError", "message": str(error)}
            except BaseException as error:
                line |= {on_damage: "other", "message": f"{type(error).__name__}: {error}"}
        peak = peak_bytes()
        print(
            json.dumps({**line, "seconds": time.perf_counter() - start, "peak": peak}), flush=True
        )
        if number == 0:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            most = pages * os.sysconf("SC_PAGE_SIZE") + MOST_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            sys.addaudithook(watch)


def open_all(folder: Path, paths: list[str], first: Path) -> Report:
    """What a watched process of limited memory makes of each path; a good one warms it up."""
    listing = folder / "listing.json"
    listing.write_text(json.dumps([str(first), *paths]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, __file__, str(listing)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}:{ROOT}"},
        timeout=150,
        check=False,
        cwd=folder,
        stdin=subprocess.DEVNULL,
    )
    report = [json.loads(line) for line in done.stdout.splitlines()]
    opened = len(report) - 1
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:], paths[opened : opened + 1])
    assert done.stderr == ""
    assert (report[0]["error"], report[0]["skip"]) == ("whole", "whole")
    assert opened == len(paths)
    slowest = max(report, key=lambda line: line["seconds"])
    assert slowest["seconds"] <= MOST_SECONDS, slowest
    assert report[-1]["peak"] - report[0]["peak"] <= MOST_BYTES
    return report[1:]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small good clips."""
    folder = tmp_path_factory.mktemp("good")
    for name, codec in (("a.mp4", "libx264"), ("a.mkv", "libx264"), ("a.avi", "mpeg4")):
        making.make_video(folder / name, 24, codec=codec, gop=8)
    making.make_video(folder / "h.avi", 24, gop=8)
    making.make_video(folder / "v.webm", 24, codec="libvpx", options={"deadline": "realtime"})
    making.make_video(folder / "f.mp4", 24, muxing={"movflags": "frag_keyframe+empty_moov"})
    return folder


def strange_places() -> dict[str, making.Maker]:
    """Things with a name that are not files of bytes."""
    return {
        "pipe": os.mkfifo,
        "loop": lambda path: path.symlink_to(path),
        "dangling": lambda path: path.symlink_to("nowhere"),
        "device": lambda path: path.symlink_to("/dev/zero"),
        "endless": lambda path: path.symlink_to("/dev/urandom"),
        "folder": lambda path: path.mkdir(),
        "plug": _plug,
    }


def _plug(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind(path.name)  # a whole path may be too long for one


@contextmanager
def opened_in(folder: Path) -> Iterator[set[str]]:
    """The names of all files in a folder that anyone opens, by whatever means, told at the end."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(IN_NONBLOCK)
    assert libc.inotify_add_watch(descriptor, os.fsencode(folder), IN_OPEN) >= 0
    names: set[str] = set()
    try:
        yield names
        raw = b""
        while True:
            try:
                raw += os.read(descriptor, 1 << 20)
            except BlockingIOError:
                break
        while raw:
            length = struct.unpack_from("iIII", raw)[3]
            names.add(os.fsdecode(raw[16 : 16 + length].rstrip(b"\0")))
            raw = raw[16 + length :]
    finally:
        os.close(descriptor)


def test_every_hostile_seed_is_a_clear_error(
    tmp_path: Path, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seeds: dict[str, bytes | making.Maker] = {
        **making.broken_files(good),
        **making.other_containers(),
        **strange_places(),
    }
    assert len(seeds) >= 60
    for name, seed in seeds.items():
        if isinstance(seed, bytes):
            (tmp_path / name).write_bytes(seed)
        else:
            seed(tmp_path / name)

    report = open_all(tmp_path, [str(tmp_path / name) for name in seeds], good / "a.mp4")

    for name, line in zip(seeds, report, strict=True):
        assert line["error"] == line["skip"] == "VideoError", line
        assert name in line["message"], line
        assert len(line["message"]) < 600, line


def test_playlists_and_addresses_are_refused_and_lead_nowhere(tmp_path: Path, good: Path) -> None:
    (tmp_path / "target.mp4").write_bytes((good / "a.mp4").read_bytes())
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        files = making.playlists(port)
        for name, text in files.items():
            (tmp_path / name).write_bytes(text)
        (tmp_path / "elsewhere.mp4").write_bytes(
            making.pointing_elsewhere((good / "a.mp4").read_bytes(), b"target.mp4\0")
        )

        with opened_in(tmp_path) as names:
            paths = ["elsewhere.mp4", *files, *making.addresses(port)]
            elsewhere, *report = open_all(tmp_path, paths, good / "a.mp4")

        with pytest.raises(BlockingIOError):
            server.accept()
    assert elsewhere["error"] == "whole"  # its own samples: where it points is not looked at
    for line in report:
        assert line["error"] == line["skip"] == "VideoError", line
    assert names >= set(files) - {"script.vpy"}
    assert not names & {"target.mp4", "secret.txt"}
    assert not (tmp_path / "executed").exists()


def test_the_watch_sees_what_it_must_see(tmp_path: Path, good: Path) -> None:
    (tmp_path / "target.mp4").write_bytes((good / "a.mp4").read_bytes())
    with opened_in(tmp_path) as names:
        use(str(tmp_path / "target.mp4"), "error")
        subprocess.run(["cat", tmp_path / "target.mp4"], check=True, stdout=subprocess.DEVNULL)
    assert names == {"target.mp4"}

    script = "import sys, socket, tests.hostile.test_videos as v; sys.addaudithook(v.watch); "
    for action in ("socket.socket()", "open('x', 'w')", "v.os.system('true')"):
        done = subprocess.run(
            [sys.executable, "-c", script + action],
            capture_output=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{SOURCE}:{ROOT}"},
        )
        assert done.returncode == CAUGHT, done.stderr


def mutant(generator: random.Random, raw: bytes) -> bytes:
    """Change bytes, zero a piece, cut the end off, or put a piece where it does not belong."""
    out = bytearray(raw)
    heads = [position for position in (raw.find(b"moov"), raw.find(b"moof"), 0) if position >= 0]
    match generator.randrange(5):
        case 0:
            for _ in range(generator.choice((1, 5, 20, 200))):
                out[generator.randrange(len(out))] = generator.randrange(256)
        case 1:
            position = generator.randrange(len(out))
            out[position : position + generator.choice((4, 200, 2000))] = bytes(
                generator.choice((4, 200))
            )
        case 2:
            del out[generator.randrange(1, len(out)) :]
        case 3:
            head = generator.choice(heads)
            for _ in range(generator.choice((1, 3, 10))):
                position = min(len(out) - 1, head + generator.randrange(1000))
                out[position] = generator.choice((0, 1, 127, 128, 255, generator.randrange(256)))
        case _:
            position, start = generator.randrange(len(out)), generator.randrange(len(out))
            out[position:position] = out[start : start + generator.choice((4, 8, 100))]
    return bytes(out)


def test_mutants_are_read_or_refused_and_nothing_else(tmp_path: Path, good: Path) -> None:
    generator = random.Random(20261115)
    bases = [path.read_bytes() for path in sorted(good.iterdir())]
    paths = []
    for number in range(MUTANTS):
        path = tmp_path / f"{number}.video"
        path.write_bytes(mutant(generator, generator.choice(bases)))
        paths.append(str(path))

    report = open_all(tmp_path, paths, good / "a.mp4")

    outcomes = Counter((line["error"], line["skip"]) for line in report)
    for line in report:
        assert line["error"] in ("whole", "damaged", "VideoError"), line
        assert line["skip"] in ("whole", "damaged", "VideoError"), line
        if line["error"] != "VideoError":
            assert line["skip"] == line["error"], line
    assert min(outcomes["whole", "whole"], outcomes["VideoError", "damaged"]) > 20, outcomes


if __name__ == "__main__":
    child(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
