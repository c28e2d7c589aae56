"""Image files that are wrong in every way we could think of, and random mutants of good files.

Run as a program (`python -m tests.media.hostile_images 3000 1`) it feeds mutants to the reader
under a memory cap, with an audit hook that ends the process if a file is opened for writing, a
program is started or a socket made, and prints what came of it as JSON.
"""

import io
import json
import resource
import struct
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

FORBIDDEN = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "socket.", "shutil.")


def good_files() -> dict[str, bytes]:
    """Small valid files: every format, mode and compression that is read."""
    rng = np.random.default_rng(0)
    rgb = Image.fromarray(rng.integers(0, 256, (23, 31, 3), dtype=np.uint8))
    smooth = Image.linear_gradient("L").resize((40, 24)).convert("RGB")
    deep = Image.fromarray(rng.integers(0, 65536, (9, 11), dtype=np.uint16))
    floats = Image.fromarray(rng.random((9, 11), dtype=np.float32))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "words"
    frames: dict[str, Any] = {"save_all": True, "append_images": [rgb.rotate(90), rgb]}
    made = {
        "png rgb": _file(rgb, "PNG"),
        "png rgba": _file(rgb.convert("RGBA"), "PNG"),
        "png palette": _file(rgb.convert("P"), "PNG", transparency=3),
        "png grey": _file(rgb.convert("L"), "PNG"),
        "png bits": _file(rgb.convert("1"), "PNG"),
        "png deep": _file(deep, "PNG"),
        "png exif": _file(rgb, "PNG", exif=exif),
        "png animated": _file(rgb, "PNG", **frames),
        "jpeg": _file(smooth, "JPEG"),
        "jpeg progressive": _file(smooth, "JPEG", progressive=True, exif=exif),
        "jpeg grey": _file(smooth.convert("L"), "JPEG"),
        "jpeg cmyk": _file(smooth.convert("CMYK"), "JPEG"),
        "webp": _file(smooth, "WEBP"),
        "webp lossless": _file(rgb.convert("RGBA"), "WEBP", lossless=True, exif=exif),
        "webp animated": _file(rgb, "WEBP", **frames),
        "bmp": _file(rgb, "BMP"),
        "bmp palette": _file(rgb.convert("P"), "BMP"),
        "bmp bits": _file(rgb.convert("1"), "BMP"),
        "gif": _file(rgb.convert("P"), "GIF", transparency=1),
        "gif animated": _file(rgb.convert("P"), "GIF", **frames),
        "tiff float": _file(floats, "TIFF"),
        "tiff deep": _file(deep, "TIFF"),
        "tiff exif": _file(rgb, "TIFF", exif=exif),
        "tiff pages": _file(rgb, "TIFF", **frames),
        "tiff cmyk": _file(rgb.convert("CMYK"), "TIFF"),
    }
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        made[f"tiff {compression}"] = _file(rgb, "TIFF", compression=compression)
    made["tiff group4"] = _file(rgb.convert("1"), "TIFF", compression="group4")
    return made


def bad_files() -> dict[str, bytes]:
    """Files that must be refused."""
    good = good_files()
    png, jpeg, gif = good["png rgb"], good["jpeg"], good["gif"]
    tiff, bmp, webp = good["tiff exif"], good["bmp"], good["webp"]
    return {
        "empty": b"",
        "one byte": b"\x89",
        "seven bytes": png[:7],
        "text": b"hello, this is not an image\n" * 10,
        "zeros": bytes(4096),
        "html": b"<!DOCTYPE html><html><body>404</body></html>",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) print quit\n%%EOF",
        "pdf": b"%PDF-1.7\n1 0 obj<<>>endobj\ntrailer<<>>\n%%EOF",
        "ppm": b"P6 2 2 255\n" + bytes(12),
        "xbm": b"#define a_width 8\n#define a_height 1\nstatic char a_bits[] = {0xff};",
        "ico": struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, 40, 22) + bytes(40),
        "tga": bytes([0, 0, 2, *[0] * 9, 2, 0, 2, 0, 24, 0]) + bytes(12),
        "psd": b"8BPS\0\1" + bytes(40),
        "zip": b"PK\x03\x04" + bytes(60),
        "elf": b"\x7fELF" + bytes(60),
        "heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40),
        "avif": b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + bytes(40),
        "mp4": b"\0\0\0\x18ftypisom" + bytes(40),
        "playlist": b"ffconcat version 1.0\nfile ok.mp4\n",
        "gigapixels png": _png(100_000, 100_000),
        "many pixels png": _png(13_000, 13_000),
        "no size png": _png(0, 5),
        "depth 7 png": _png(5, 5, depth=7),
        "colour type 9 png": _png(5, 5, colour=9),
        "no pixels png": b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", bytes(13)) + _chunk(b"IEND", b""),
        "noise png": _png(5, 5, data=b"not zlib at all"),
        "short png": _png(50, 50, data=zlib.compress(bytes(10))),
        "wrong sum png": png[:40] + bytes([png[40] ^ 255]) + png[41:],
        "bomb in text png": _png(5, 5, extra=_chunk(b"zTXt", b"a\0\0" + _bomb())),
        "bomb in profile png": _png(5, 5, extra=_chunk(b"iCCP", b"a\0\0" + _bomb())),
        "long chunk png": png[:8] + b"\x7f\xff\xff\xff" + png[12:],
        "half png": png[: len(png) // 2],
        "half jpeg": jpeg[: len(jpeg) // 2],
        "start of jpeg": b"\xff\xd8",
        "no tables jpeg": b"\xff\xd8\xff\xc0\0\x0b\x08\0\x10\0\x10\1\1\x11\0\xff\xd9",
        "gigapixels jpeg": jpeg.replace(jpeg[_sof(jpeg) : _sof(jpeg) + 4], b"\xff\xff\xff\xff"),
        "half gif": gif[: len(gif) // 3],
        "gigapixels gif": gif[:6] + b"\xff\xff\xff\xff" + gif[10:],
        "half bmp": bmp[: len(bmp) // 2],
        "gigapixels bmp": bmp[:18] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + bmp[26:],
        "negative bmp": bmp[:18] + struct.pack("<ii", -5, -5) + bmp[26:],
        "bits bmp": bmp[:28] + b"\x63\0" + bmp[30:],
        "header bmp": bmp[:14] + b"\xff\xff\xff\xff" + bmp[18:],
        "half webp": webp[: len(webp) // 2],
        "length webp": webp[:4] + b"\xff\xff\xff\xff" + webp[8:30],
        "half tiff": tiff[:20],
        "far directory tiff": tiff[:4] + b"\xff\xff\xff\x7f" + tiff[8:],
        "own tail tiff": b"II*\0\x08\0\0\0\0\0\x08\0\0\0",
        "no tags tiff": b"II*\0\x08\0\0\0\0\0\0\0\0\0",
        "long tiff": _tiff({256: 11, 257: 4_653_065}),
        "gigapixels tiff": _tiff({256: 10**6, 257: 10**6}),
        "samples tiff": _tiff({256: 5, 257: 5, 277: 60000}),
        "compression tiff": _tiff({256: 5, 257: 5, 259: 31337}),
        **_laborious(good),
        "strips tiff": _tiff({256: 5, 257: 5, 273: 2**31, 279: 2**31}),
    }


def _laborious(good: dict[str, bytes]) -> dict[str, bytes]:
    """Small files that would keep a reader busy for long."""
    png, jpeg, gif = good["png rgb"], good["jpeg"], good["gif"]
    pixels, end, image = png.index(b"IDAT") - 4, png.index(b"IEND") - 4, gif.index(b",", 13)
    empty, word = _chunk(b"IDAT", b""), _chunk(b"tEXt", b"a\0b")
    many = 300_000
    return {
        "repeated scan jpeg": repeated_scans(2000, 2000, 3000),
        "many scans of many pixels jpeg": repeated_scans(6000, 6000, 60),
        "empty pixels png": png[:pixels] + empty * many + png[pixels:],
        "words png": png[:pixels] + word * many + png[pixels:],
        "words at the end png": png[:end] + word * many + png[end:],
        "empty segments jpeg": jpeg[:2] + b"\xff\xe5\0\2" * many + jpeg[2:],
        "filled jpeg": jpeg[:2] + b"\xff" * many + jpeg[2:],
        "comments between scans jpeg": jpeg[:-2] + b"\xff\xfe\0\2" * many + jpeg[-2:],
        "comments gif": gif[:image] + b"\x21\xfe\x01a\0" * many + gif[image:],
        "zeros gif": gif[:image] + bytes(many) + gif[image:],
    }


def repeated_scans(width: int, height: int, count: int) -> bytes:
    """A progressive JPEG of one grey whose last scan, a few bytes, is there so many times."""
    raw = _file(Image.new("L", (width, height), 128), "JPEG", progressive=True)
    last, end = raw.rindex(b"\xff\xda"), raw.rindex(b"\xff\xd9")
    return raw[:last] + raw[last:end] * count + raw[end:]


def mutant(data: bytes, rng: np.random.Generator) -> bytes:
    """A good file with something done to it."""
    damaged = bytearray(data)
    kind = rng.integers(6)
    at = int(rng.integers(len(damaged)))
    if kind == 0:
        del damaged[at:]
    elif kind == 1:
        del damaged[at : at + int(rng.integers(1, 40))]
    elif kind == 2:
        damaged[at:at] = damaged[at : at + int(rng.integers(1, 200))]
    elif kind == 3:
        value = rng.choice([0, 1, 0x7F, 0x80, 0xFF]).astype(np.uint8).tobytes()
        damaged[at : at + 4] = value * len(damaged[at : at + 4])
    elif kind == 4:
        at = int(rng.integers(min(64, len(damaged))))
        damaged[at] = int(rng.integers(256))
    else:
        for position in rng.integers(0, len(damaged), int(rng.integers(1, 12))):
            damaged[position] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def run(count: int, seed: int) -> dict[str, Any]:
    """Read so many mutants, and count what came of them."""
    from samgraph.errors import ImageError
    from samgraph.media.image.reading import image_size, read_image

    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    warnings.simplefilter("error")
    sys.addaudithook(_watch)
    rng = np.random.default_rng(seed)
    seeds = list(good_files().values())
    outcome: Counter[str] = Counter()
    slowest = 0.0
    for index in range(count):
        data = mutant(seeds[index % len(seeds)], rng)
        start = time.process_time()
        for read in (image_size, read_image):
            outcome[f"{read.__name__} {_outcome(read, data, ImageError)}"] += 1
        slowest = max(slowest, time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"outcome": dict(outcome), "slowest": slowest, "peak_mb": peak}


def _outcome(read: Callable[[bytes], object], data: bytes, expected: type[Exception]) -> str:
    try:
        read(data)
    except expected:
        return "refused"
    except BaseException as error:
        return f"{type(error).__name__}: {error} from {data.hex()[:4000]}"
    return "fine"


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event.startswith(FORBIDDEN):
        print(f"forbidden: {event} {arguments!r}", file=sys.stderr)
        sys.stderr.flush()
        raise SystemExit(99)


def _file(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _png(
    width: int,
    height: int,
    *,
    depth: int = 8,
    colour: int = 2,
    data: bytes = b"",
    extra: bytes = b"",
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    pixels = data or zlib.compress(bytes(1000))
    parts = _chunk(b"IHDR", header) + extra + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def _tiff(tags: dict[int, int]) -> bytes:
    """A little-endian TIFF of one directory; every tag a LONG."""
    tags = {258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 5, 279: 25, **tags}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4)


def _bomb() -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()


def _sof(jpeg: bytes) -> int:
    """Where a JPEG says its height and width."""
    return jpeg.index(b"\xff\xc0") + 5


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
