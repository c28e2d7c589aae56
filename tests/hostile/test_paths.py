"""A path that no file can have is one clear error wherever a path is given."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samgraph import checkpoint, formats
from samgraph.errors import SamgraphError
from samgraph.jobs.journal import RunFolder
from samgraph.media.files import write_atomically
from samgraph.media.image.reading import image_size, read_image, read_label_image
from samgraph.media.video.frames import open_frames
from samgraph.media.video.writer import VideoWriter
from samgraph.models.loading import load_model
from samgraph.predict.features import Embedding
from samgraph.runtime.profiles import find_profile, read_profiles


def write_video(name: str) -> None:
    with VideoWriter(name, (16, 16)) as writer:
        writer.write(np.zeros((16, 16, 3), np.uint8))


NAMES = {
    "a lone surrogate": "\ud800",
    "a zero": "a\0b",
    "too long": "x" * 5000,
    "too long inside": "x" * 5000 + "/a",
    "a pattern": "\ud800/*",
    "nothing": "",
}
READERS: dict[str, Callable[[str], object]] = {
    "image": read_image,
    "image size": image_size,
    "label image": read_label_image,
    "frames": open_frames,
    "list of frames": lambda name: open_frames([name, name]).frame(0),
    "model": load_model,
    "checkpoint": lambda name: load_model(name + ".pt"),
    "embedding": Embedding.load,
    "profiles": read_profiles,
    "profile": lambda name: find_profile(name + ".toml"),
    "coco": formats.read_coco,
    "labelme": formats.read_labelme,
    "label studio": formats.read_label_studio,
    "cvat": formats.read_cvat,
    "mots": formats.read_mots,
    "yolo": lambda name: formats.read_yolo(name, (8, 9)),
    "davis": formats.read_davis,
    "davis frame": formats.read_davis_frame,
}
WRITERS: dict[str, Callable[[str], object]] = {
    "file": lambda name: write_atomically(name, b"x"),
    "file inside": lambda name: write_atomically(f"{name}/a", b"x"),
    "video": lambda name: write_video(f"{name}.mp4"),
    "weights": lambda name: checkpoint.save(name, {"a": np.zeros(1, np.float32)}),
}


# An empty name is the current folder or the root, and `.mp4` is a name.
FOLDERS = [("davis", "nothing"), ("file inside", "nothing"), ("video", "nothing")]
CASES = [(use, name) for use in (*READERS, *WRITERS) for name in NAMES]


@pytest.mark.parametrize(("use", "name"), [case for case in CASES if case not in FOLDERS])
def test_an_impossible_path_is_one_clear_error(
    use: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SamgraphError) as caught:
        (READERS | WRITERS)[use](NAMES[name])

    message = str(caught.value)
    assert all(line.isprintable() for line in message.split("\n"))
    assert len(message) < 1000


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "x" * 5000])
def test_a_run_folder_of_an_impossible_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SamgraphError, match="cannot be made"):
        RunFolder(tmp_path / name, {}, resume=False)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "x" * 5000])
def test_no_profiles_are_beside_weights_that_cannot_exist(name: str) -> None:
    assert find_profile(None, name).name == "fused"


@pytest.mark.parametrize("use", [read_profiles, formats.read_coco, formats.read_cvat, read_image])
def test_a_pipe_is_refused_at_once(use: Callable[[Any], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")

    with pytest.raises(SamgraphError, match=r"a pipe|not a regular file"):
        use(tmp_path / "pipe.toml")
