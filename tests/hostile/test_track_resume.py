"""`samgraph track` killed without warning, again and again: nothing is lost, nothing differs."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.running import weights_file
from tests.golden import scenes

pytestmark = pytest.mark.timeout(600)

FRAMES = 12
KILLS = int(os.environ.get("SAMGRAPH_KILLS", "4"))
# The child saves its session at every chance, so that a kill may hit that too.
CHILD = (
    "import sys; from samgraph.jobs import track; track.SESSION_SECONDS = 0.05;"
    "from samgraph.cli.main import main; main(sys.argv[1:])"
)


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("frames")
    for index in range(FRAMES):
        Image.fromarray(scenes.frame(index)).save(folder / f"{index}.png")
    weights = weights_file(tmp_path_factory.mktemp("weights"))
    prompts = ["--point", "40,50", "--point", "118,84:2"]
    return ["track", str(folder), *prompts, "--model", str(weights), "--quiet"]


def started(arguments: list[str], out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CHILD, *arguments, "-o", str(out), "--resume"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def lines(out: Path) -> list[int]:
    """The frames whose lines are whole."""
    path = out / "frames.jsonl"
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    return [json.loads(line)["frame"] for line in whole.splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_run_that_is_killed_ends_with_the_same_files(
    arguments: list[str], tmp_path: Path
) -> None:
    chance = random.Random(7)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    child = started(arguments, whole)
    _, error = child.communicate()
    assert child.returncode == 0, error.decode()
    seen: list[int] = []

    for kill in range(KILLS):
        child = started(arguments, parts)
        target = min(FRAMES - 1, len(seen) + 1 + FRAMES // (KILLS + 1))
        while len(lines(parts)) < target and child.poll() is None:
            time.sleep(0.002)
        time.sleep(chance.random() * 0.05)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        after = lines(parts)
        assert after[: len(seen)] == seen, f"kill {kill} lost frames"
        assert all((parts / f"{frame}.png").exists() for frame in after)
        seen = after
    child = started(arguments, parts)
    _, error = child.communicate()

    assert child.returncode == 0, error.decode()
    assert len(seen) > 1
    assert contents(parts) == contents(whole)


def test_two_runs_do_not_write_one_folder(arguments: list[str], tmp_path: Path) -> None:
    first = started(arguments, tmp_path / "out")
    while not (tmp_path / "out" / "frames.jsonl").exists() and first.poll() is None:
        time.sleep(0.01)

    second = started(arguments, tmp_path / "out")
    _, error = second.communicate()
    first.communicate()

    assert first.returncode == 0
    assert second.returncode == 2 or b"frames in" in error
    assert lines(tmp_path / "out") == list(range(FRAMES))
