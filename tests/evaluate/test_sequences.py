"""Data sets in the layout of DAVIS: what is found, and what is not complete."""

from pathlib import Path

import pytest

from samgraph.errors import VideoError
from samgraph.evaluate.sequences import find_sequences


def make(folder: Path, *files: str) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize("level", ["", "480p/", "Full-Resolution/"])
def test_sequences_are_found_at_any_resolution(level: str, tmp_path: Path) -> None:
    for name in ("b", "a"):
        make(tmp_path, f"JPEGImages/{level}{name}/0.jpg", f"Annotations/{level}{name}/0.png")

    found = find_sequences(tmp_path)

    assert [sequence.name for sequence in found] == ["a", "b"]
    assert found[0].frames == tmp_path / f"JPEGImages/{level}a"
    assert found[0].annotations == (tmp_path / f"Annotations/{level}a/0.png",)
    assert [sequence.name for sequence in find_sequences(tmp_path, ["b"])] == ["b"]


@pytest.mark.parametrize(
    ("files", "names", "message"),
    [
        ([], (), "`.*JPEGImages` does not exist"),
        (["JPEGImages/a/0.jpg"], (), "`.*Annotations` does not exist"),
        (["JPEGImages/a/0.jpg", "Annotations/a/0.txt"], (), "sequence `a` is not complete"),
        (["JPEGImages/a/0.jpg", "Annotations/b/0.png"], (), "sequence `b` is not complete"),
        (["JPEGImages/a/0.jpg", "Annotations/a/0.png"], ("c",), "has no sequence `c`"),
    ],
)
def test_what_is_missing_is_named(
    files: list[str], names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    make(tmp_path, *files)

    with pytest.raises(VideoError, match=message):
        find_sequences(tmp_path, names)
