"""The journal of a tracking run, and the video made from it at the end."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samgraph.jobs.journal import Journal, frame_record
from samgraph.media.video.frames import open_frames
from samgraph.media.video.source import Damage
from samgraph.predict.video.result import FrameResult, ObjectResult
from tests.cli.running import Outcome
from tests.golden import scenes
from tests.media.video_making import make_video

Run = Callable[..., Outcome]
TIMES = [0, 40, 50, 500, 520, 1500]


def test_damage_of_a_frame_is_recorded_and_read_back(tmp_path: Path) -> None:
    """So that a run that was stopped ends with the report of an uninterrupted run."""
    damage = Damage(concealed=(1,), resized=(1, 2))
    low = np.full((4, 4), -1, np.float32)
    journal = Journal(tmp_path / "frames.jsonl")
    for index in range(3):
        obj = ObjectResult("cup", np.array([-2.0]), np.array([0.5]), logits=low)
        result = FrameResult(index, None, (8, 8), (obj,))
        journal.append(frame_record(result, damage))
    journal.close()

    again = Journal(tmp_path / "frames.jsonl")
    records = list(again.records())
    again.close()

    assert (again.frames, again.concealed, again.resized) == ({0, 1, 2}, {1}, {1, 2})
    assert [sorted({"concealed", "resized"} & record.keys()) for record in records] == [
        [],
        ["concealed", "resized"],
        ["resized"],
    ]


@pytest.mark.usefixtures("folder")
def test_the_overlay_video_keeps_the_times_of_its_frames(samgraph: Run) -> None:
    make_video(Path("clip.mkv"), scenes.frames(len(TIMES)), times=TIMES)
    given = ("clip.mkv", "--point", "40,50@1", "--start", "1", "--format", "overlay")

    outcome = samgraph("track", *given, "-o", "out")

    assert outcome.code == 0, outcome.err
    with open_frames("out/overlay.mp4") as video:
        assert video.length == len(TIMES) - 1
        times = [video.time(index) for index in range(video.length)]
    assert times == [pytest.approx((time - TIMES[1]) / 1000, abs=2e-3) for time in TIMES[1:]]
