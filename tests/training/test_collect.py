"""What is taken of archives: patterns, licences stated by packages, Qt resources, videos."""

import hashlib
import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training import collect

COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
License: GPL-3+

Files: images/a.jpg
       images/sea*
Copyright: somebody
License: CC-BY-SA-3.0
 The long text of it.

Files: images/sea2.jpg
License: CC-BY-NC-2.0
"""


def _picture(form: str, *, mode: str = "RGB", size: tuple[int, int] = (60, 40)) -> bytes:
    values = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    image = Image.fromarray(values).convert(mode)
    if mode == "RGBA":
        image.putalpha(Image.new("L", size, 0))
        image.paste((200, 10, 10, 255), (10, 10, 40, 30))
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def _tar(path: Path, files: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _resources(files: dict[str, bytes]) -> bytes:
    """A Qt resource file of version 1: one folder, `images`, with the files in it."""
    names, places = b"", {}
    for name in ("images", *files):
        places[name] = len(names)
        names += struct.pack(">HI", len(name), 0) + name.encode("utf-16-be")
    tree = struct.pack(">IHII", 0, 2, 1, 1) + struct.pack(">IHII", 0, 2, len(files), 2)
    contents = b""
    for name, data in files.items():
        tree += struct.pack(">IHHHI", places[name], 0, 0, 0, len(contents))
        contents += struct.pack(">I", len(data)) + data
    start = 20
    offsets = (1, start, start + len(tree), start + len(tree) + len(contents))
    return b"qres" + struct.pack(">4I", *offsets) + tree + contents + names


def test_the_last_paragraph_on_a_file_states_its_licence() -> None:
    stated = collect.stated(COPYRIGHT)
    assert stated.licence("images/a.webp") == "CC-BY-SA-3.0"
    assert stated.licence("images/sea1.jpg") == "CC-BY-SA-3.0"
    assert stated.licence("images/sea2.jpg") == "CC-BY-NC-2.0"
    assert stated.licence("src/main.c") == "GPL-3+"


@pytest.mark.parametrize("licence", ["CC-BY-NC-4.0", "CC-BY-ND-4.0", "GPL-3+", "CC-BY", "unclear"])
def test_what_is_not_free_stops_the_collection(licence: str, tmp_path: Path) -> None:
    row = f'[[source]]\narchive="a"\nversion="1"\nsha256="0"\nlicence="{licence}"\n'
    (tmp_path / "sources.toml").write_text(row)
    with pytest.raises(SystemExit, match="is not free"):
        collect.read_sources(tmp_path / "sources.toml")


def test_every_source_is_named_with_its_hash() -> None:
    for source in collect.read_sources(Path(collect.__file__).with_name("sources.toml")):
        assert len(source.sha256) == 64
        assert source.photos or source.cutouts or source.videos, source.archive


def test_pictures_of_an_archive_with_a_stated_licence(tmp_path: Path) -> None:
    files = {"images/sea1.jpg": _picture("JPEG"), "images/sea2.jpg": _picture("JPEG")}
    inner = _resources({"a.png": _picture("PNG", mode="RGBA"), "b.png": _picture("PNG")})
    members = {"doc/copyright": COPYRIGHT.encode(), "data.rcc": inner}
    sha256 = _tar(tmp_path / "p.tar.gz", members | {f"./{k}": v for k, v in files.items()})
    rows = [
        collect.Source(
            "p.tar.gz", "1", sha256, "copyright", photos=("images/sea?.jpg",), root="./"
        ),
        collect.Source("p.tar.gz", "1", sha256, "copyright", cutouts=("*.png",)),
    ]
    found = collect.pictures(rows, tmp_path)
    assert [(each.tar, each.credit.file, each.credit.licence) for each in found] == [
        ("cutouts", "images/a.png", "CC-BY-SA-3.0"),  # b.png is nobody's but the GPL's
        ("photos", "./images/sea1.jpg", "CC-BY-SA-3.0"),  # sea2.jpg is not free
    ]


def test_an_archive_that_changed_is_refused(tmp_path: Path) -> None:
    _tar(tmp_path / "p.tar.gz", {"a.jpg": _picture("JPEG")})
    with pytest.raises(SystemExit, match="is another file"):
        collect.pictures([collect.Source("p.tar.gz", "1", "0" * 64, "CC0")], tmp_path)


def test_wheels_patterns_and_what_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "p.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("p/a.jpg", "p/b.jpg", "q/c.jpg"):
            archive.writestr(name, _picture("JPEG"))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    row = collect.Source("p.whl", "1", sha256, "CC0", photos=("p/*.jpg",), without=("b.jpg",))
    assert [each.credit.file for each in collect.pictures([row], tmp_path)] == ["p/a.jpg"]


def test_frames_are_spread_over_a_video() -> None:
    av = pytest.importorskip("av")
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height = 480, 320
        for value in range(0, 240, 10):
            image = Image.new("RGB", (480, 320), (value, value, value))
            container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode())
    frames = [Image.open(io.BytesIO(data)) for data in collect.frame_files(buffer.getvalue())]
    assert len(frames) == collect.FRAMES
    assert {frame.size for frame in frames} == {(384, 256)}
    values = [float(np.asarray(frame).mean()) for frame in frames]
    assert values == sorted(values)
    assert values[0] < 30
    assert values[-1] > 200


def test_the_same_archives_give_the_same_tars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = _tar(tmp_path / "p.tar.gz", {"a.jpg": _picture("JPEG")})
    row = collect.Source("p.tar.gz", "1", sha256, "CC0", photos=("a.jpg",))
    monkeypatch.setattr(collect, "read_sources", lambda _: [row])
    for out in ("one", "two"):
        collect.main([str(tmp_path), str(tmp_path / out)])
    one, two = (tmp_path / out / "photos.tar" for out in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    (credit,) = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert credit["licence"] == "CC0"
