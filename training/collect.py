"""Collect the free photographs and cut-outs that widen the training of the built-in model.

    python training/collect.py PACKAGES OUT

`sources.toml` names the archives (Debian and Ubuntu packages, source archives), their sha256, the
files taken from each and the licence of those files. PACKAGES is a folder that holds the archives;
nothing is downloaded and nothing is installed (`dpkg-deb` only lists a package as a tar). OUT gets

    photos.tar      JPEG, longest side 512; large photographs also give crops, which keep detail
    cutouts.tar     WebP with alpha, longest side 256, cut to what is not transparent
    manifest.json   for each picture: the archive, its sha256, the file in it, the licence

The same archives and the same Pillow give the same bytes.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import groupby, repeat
from pathlib import Path
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
BUSY = 10.0
"""Mean step between neighbouring pixels, of 255, below which a crop shows nothing (sky, fog)."""
FREE = ("public-domain", "CC0", "CC-BY")
"""How the licences start that let a trained model be shipped; CC-BY covers CC-BY-SA."""


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one archive under one licence; a name is matched against the end of the path."""

    archive: str
    version: str
    sha256: str
    licence: str
    photos: tuple[str, ...] = ()
    cutouts: tuple[str, ...] = ()


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
        if not source.licence.startswith(FREE) or {"NC", "ND"} & set(source.licence.split("-")):
            raise SystemExit(f"the licence `{source.licence}` of `{source.archive}` is not free")
    return sources


def source_of(row: dict[str, Any]) -> Source:
    """One row of the table; only the lists of names may be missing."""
    return Source(
        archive=row["archive"],
        version=row["version"],
        sha256=row["sha256"],
        licence=row["licence"],
        photos=tuple(row.get("photos", ())),
        cutouts=tuple(row.get("cutouts", ())),
    )


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the bytes of each regular file of a .deb or a tar, in archive order."""
    data = archive.read_bytes()
    if archive.suffix == ".deb":
        command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
        data = subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            if member.isreg() and (file := tar.extractfile(member)):
                yield member.name, file.read()


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
    """Whether the path ends in one of the names."""
    return any(path == name or path.endswith("/" + name) for name in names)


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
    return [p for path, data in members(archive) for row in rows for p in taken(row, path, data)]


def taken(row: Source, path: str, data: bytes) -> Iterator[Picture]:
    """What one row takes of one file: nothing, one picture, or a photograph and its crops."""
    is_photo = wanted(path, row.photos)
    if not is_photo and not wanted(path, row.cutouts):
        return
    tar, end = ("photos", "jpg") if is_photo else ("cutouts", "webp")
    stem = f"{row.archive.split('_')[0]}/{hashlib.sha256(data).hexdigest()[:12]}"
    for index, file in enumerate(photo_files(data) if is_photo else cutout_files(data)):
        credit = Credit(f"{stem}-{index}.{end}", row.archive, row.sha256, path, row.licence)
        yield Picture(tar, file, credit)


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
