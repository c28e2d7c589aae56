"""Disks that are full or read-only: one clear error, or less comfort, and never a lost frame."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from samgraph.errors import OutputError
from samgraph.jobs import track
from samgraph.jobs.track_output import TrackOutput
from samgraph.media.files import write_atomically
from samgraph.predict.video.video import Video
from tests.cli.conftest import folder, samgraph, weights  # noqa: F401 (fixtures)
from tests.cli.running import Outcome
from tests.golden import scenes

Run = Callable[..., Outcome]
FRAMES = 4
write_frame = TrackOutput.write_frame
BOX = ("--box", "17,27,63,73")


@pytest.fixture
def frames(folder: Path) -> Path:  # noqa: F811 (a fixture)
    path = folder / "frames"
    path.mkdir()
    for index in range(FRAMES):
        Image.fromarray(scenes.frame(index)).save(path / f"{index}.png")
    return path


def refusing(target: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system refuse every change below a folder, even the removal of what is not there."""

    def guarded(name: str, writes: Callable[..., bool]) -> None:
        original = getattr(os, name)

        def call(path: Any, *rest: Any, **named: Any) -> Any:
            if Path(os.fsdecode(path)).absolute().is_relative_to(target) and writes(path, *rest):
                raise OSError(code, os.strerror(code), path)
            return original(path, *rest, **named)

        monkeypatch.setattr(os, name, call)

    always = lambda *_: True  # noqa: E731
    for name in ("unlink", "mkdir", "rmdir", "replace", "rename", "remove"):
        guarded(name, always)
    guarded("open", lambda _, flags=0, *__: bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)))
    opened = Path.open

    def open_(self: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if self.absolute().is_relative_to(target) and set(mode) & set("wax+"):
            raise OSError(code, os.strerror(code), self)
        return opened(self, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", open_)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_cannot_be_written_is_an_output_error(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(tmp_path, code, monkeypatch)

    with pytest.raises(OutputError, match=os.strerror(code).lower()):
        write_atomically(tmp_path / "a", b"data")


@pytest.mark.usefixtures("frames")
@pytest.mark.parametrize("is_there", [True, False])
def test_a_read_only_folder_is_bad_input_and_no_bug(
    is_there: bool,
    samgraph: Run,  # noqa: F811 (a fixture)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = Path("out").absolute()
    if is_there:
        target.mkdir()
    with monkeypatch.context() as patch:
        refusing(target, errno.EROFS, patch)
        done = samgraph("track", "frames", *BOX, "-o", "out")

    assert done.code == 2
    assert "read-only file system" in done.err
    assert "bug" not in done.err


@pytest.mark.usefixtures("frames")
def test_a_run_that_becomes_read_only_is_taken_up_later(
    samgraph: Run,  # noqa: F811 (a fixture)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:

        def third_fails(self: TrackOutput, result: Any) -> None:
            if result.index == 2:
                refusing(Path("out").absolute(), errno.EROFS, patch)
            write_frame(self, result)

        patch.setattr(TrackOutput, "write_frame", third_fails)
        stopped = samgraph("track", "frames", *BOX, "-o", "out")

    assert stopped.code == 2
    assert "bug" not in stopped.err
    again = samgraph("track", "frames", *BOX, "-o", "out", "--resume")
    assert again.code == 0, again.err
    assert len(Path("out/frames.jsonl").read_text().splitlines()) == FRAMES


@pytest.mark.usefixtures("frames")
def test_a_session_that_does_not_fit_costs_nothing_but_a_word(
    samgraph: Run,  # noqa: F811 (a fixture)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = samgraph("track", "frames", *BOX, "-o", "whole")
    tried = []

    def full(self: Video, path: Path) -> None:
        tried.append(path)
        raise OutputError(f"`{path}` cannot be written", got="no space left on device")

    monkeypatch.setattr(Video, "save", full)
    monkeypatch.setattr(track, "SESSION_SECONDS", 0.0)
    done = samgraph("track", "frames", *BOX, "-o", "out")

    assert (done.code, expected.code) == (0, 0), done.err
    assert len(tried) == FRAMES
    assert done.err.count("the session was not saved") == 1
    assert "no space left on device" in done.err
    for name in sorted(os.listdir("whole")):
        assert Path("out", name).read_bytes() == Path("whole", name).read_bytes(), name


@pytest.mark.usefixtures("frames")
def test_an_interruption_without_room_for_a_session_is_still_one(
    samgraph: Run,  # noqa: F811 (a fixture)
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def interrupted(self: TrackOutput, result: Any) -> None:
        write_frame(self, result)
        if result.index == 1:
            raise KeyboardInterrupt

    def full(self: Video, path: Path) -> None:
        raise OutputError(f"`{path}` cannot be written", got="no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(TrackOutput, "write_frame", interrupted)
        patch.setattr(Video, "save", full)
        stopped = samgraph("track", "frames", *BOX, "-o", "out")

    assert stopped.code == 130
    again = samgraph("track", "frames", *BOX, "-o", "out", "--resume")
    assert again.code == 0, again.err
    assert len(Path("out/frames.jsonl").read_text().splitlines()) == FRAMES
