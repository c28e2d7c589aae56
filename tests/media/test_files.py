import os
from pathlib import Path

import numpy as np
import pytest

from samgraph.errors import OutputError
from samgraph.media.files import write_atomically


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")

    write_atomically(target, b"new")

    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError) as caught:
        write_atomically(target, np.zeros(10).tobytes())

    assert str(caught.value) == f"`{target}` cannot be written\n  got:      no space left on device"
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_missing_folder_is_named_with_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="mkdir -p"):
        write_atomically(tmp_path / "none" / "a.bin", b"x")


def test_a_folder_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    with pytest.raises(OutputError, match="cannot be written"):
        write_atomically(tmp_path / "a", b"x")
    assert os.listdir(tmp_path) == ["a"]
