"""Videos made for tests: every frame carries its number as a row of black and white squares."""

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

av = pytest.importorskip("av")

Rgb = NDArray[np.uint8]
Maker = Callable[[Path], object]

BITS, SQUARE = 10, 8
HEIGHT, WIDTH = 48, BITS * SQUARE
# How each kind of clip differs from 40 frames of H.264 with B-frames; the suffix is the container.
KINDS: dict[str, dict[str, Any]] = {
    "h264.mp4": {},
    "h264.mkv": {},
    "h264.mov": {"gop": 1, "bframes": 0},
    "h264 in stored order.avi": {},
    "one group.mp4": {"gop": 1000},
    "open groups.mkv": {"options": {"x264-params": "open-gop=1:keyint=8:bframes=3:scenecut=0"}},
    "open groups.mp4": {"options": {"x264-params": "open-gop=1:keyint=8:bframes=3:scenecut=0"}},
    "intra refresh.mp4": {"options": {"x264-params": "intra-refresh=1:keyint=10"}},
    "fragments.mp4": {"muxing": {"movflags": "frag_keyframe+empty_moov+default_base_moof"}},
    "mpeg4.avi": {"codec": "mpeg4"},
    "mpeg4.mkv": {"codec": "mpeg4"},
    "mpeg4.mp4": {"codec": "mpeg4"},
    "mpeg2.mkv": {"codec": "mpeg2video"},
    "hevc.mkv": {"codec": "libx265", "options": {"x265-params": "open-gop=1:log-level=none"}},
    "ten bits.mp4": {"pixels": "yuv420p10le"},
    "vp8.webm": {"codec": "libvpx", "options": {"deadline": "realtime", "cpu-used": "8"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}},
    "mjpeg.avi": {"codec": "mjpeg", "pixels": "yuvj420p"},
    "ffv1.mkv": {"codec": "ffv1"},
    "alpha.mov": {"codec": "qtrle", "pixels": "argb"},
}
LENGTH = 40


def picture(number: int, height: int = HEIGHT, width: int = WIDTH) -> Rgb:
    """A moving pattern under squares that spell the number, lowest bit first."""
    y, x = np.mgrid[0:height, 0:width]
    channels = (x * 2 + number * 5, y * 3 + number * 7, (x + y) // 2 + number * 11)
    image = np.stack([channel % 200 + 20 for channel in channels], axis=2).astype(np.uint8)
    for bit in range(BITS):
        image[:SQUARE, bit * SQUARE : (bit + 1) * SQUARE] = 255 * (number >> bit & 1)
    return image


def number_in(image: Rgb) -> int:
    """The number a picture carries."""
    middle = SQUARE // 2
    row = image[middle, middle : BITS * SQUARE : SQUARE].mean(axis=1) > 128
    return int(sum(1 << bit for bit, is_set in enumerate(row) if is_set))


def make_video(
    path: Path,
    pictures: "Iterable[Rgb] | int" = LENGTH,
    *,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    gop: int = 10,
    bframes: int = 2,
    options: dict[str, str] | None = None,
    muxing: dict[str, str] | None = None,
    times: Sequence[int] | None = None,
    rotation: float | None = None,
    flips: bool = False,
    file_format: str | None = None,
) -> Path:
    """Encode pictures at 25 a second, or at `times` in thousandths of a second."""
    if codec not in av.codecs_available:
        pytest.skip(f"this build of PyAV has no {codec}")
    images = map(picture, range(pictures)) if isinstance(pictures, int) else iter(pictures)
    first = next(images)
    with av.open(str(path), "w", format=file_format, options=muxing or {}) as container:
        stream = container.add_stream(codec, rate=25, options=options or {})
        stream.height, stream.width = first.shape[:2]
        stream.pix_fmt = pixels
        stream.codec_context.gop_size = gop
        if codec in ("libx264", "mpeg4", "mpeg2video"):
            stream.codec_context.max_b_frames = bframes
        stream.codec_context.thread_count = 1
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if rotation is not None:
            stream.set_display_rotation(rotation, hflip=flips)
        for number, image in enumerate([first, *images]):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame.pts = number if times is None else times[number]
            frame.time_base = Fraction(1, 25) if times is None else Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def make_kind(folder: Path, kind: str) -> Path:
    """The clip of a kind, made once a folder."""
    path = folder / kind
    return path if path.exists() else make_video(path, **KINDS[kind])


def make_plain(path: Path, length: int, height: int, width: int) -> Path:
    """A long clip of plain grey frames, encoded fast."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        stream.codec_context.gop_size = 50
        for number in range(length):
            grey = np.full((height * 3 // 2, width), 16 + number % 200, np.uint8)
            frame = av.VideoFrame.from_ndarray(grey, format="yuv420p")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def damaged_in_the_middle(path: Path, source: Path, length: int = 2000) -> Path:
    """A copy with zeros in the middle, as a failing disk leaves them."""
    raw = source.read_bytes()
    middle = len(raw) // 2
    path.write_bytes(raw[:middle] + bytes(length) + raw[middle + length :])
    return path


def cut_in_half(path: Path, source: Path) -> Path:
    """The first half of a file."""
    raw = source.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    return path


def box(kind: bytes, *content: bytes) -> bytes:
    inside = b"".join(content)
    return struct.pack(">I", 8 + len(inside)) + kind + inside


def patched(raw: bytes, after: bytes, offset: int, *numbers: int) -> bytes:
    """The file with numbers of four bytes put at an offset from the first `after`."""
    position = raw.index(after) + len(after) + offset
    new = struct.pack(f">{len(numbers)}I", *numbers)
    return raw[:position] + new + raw[position + len(new) :]


def edited(raw: bytes, edits: Sequence[tuple[int, int]], *, wide: bool = False) -> bytes:
    """An MP4 with its index at the end that shows parts: (milliseconds, media time) each."""
    form = ">QqI" if wide else ">IiI"
    entries = b"".join(struct.pack(form, length, start, 1 << 16) for length, start in edits)
    listed = box(b"edts", box(b"elst", struct.pack(">II", wide << 24, len(edits)), entries))

    def rebuilt(start: int, stop: int) -> bytes:
        out = b""
        while start < stop:
            size, kind = struct.unpack_from(">I4s", raw, start)
            inside = raw[start + 8 : start + size]
            if kind in (b"moov", b"trak"):
                inside = rebuilt(start + 8, start + size) + (listed if kind == b"trak" else b"")
            out += b"" if kind == b"edts" else box(kind, inside)
            start += size
        return out

    return rebuilt(0, len(raw))


def pointing_elsewhere(raw: bytes, target: bytes) -> bytes:
    """An MP4 whose samples are said to lie in another file."""
    out = bytearray(raw)
    for kind in (b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref", b"url "):
        position = out.index(kind) - 4
        size = int.from_bytes(out[position : position + 4]) + len(target)
        out[position : position + 4] = size.to_bytes(4)
    end = out.index(b"url ") + 8
    out[end - 4 : end] = bytes(4)
    out[end:end] = target
    return bytes(out)


def playlists(port: int) -> dict[str, bytes]:
    """Texts that lead FFmpeg to other files and addresses, in the shape of a video."""
    here = f"http://127.0.0.1:{port}/target.mp4"
    hls = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{}\n#EXT-X-ENDLIST\n"
    texts = {
        "concat.mp4": "ffconcat version 1.0\nfile target.mp4\n",
        "concat.mkv": "ffconcat version 1.0\nfile 'target.mp4'\nduration 1\n",
        "concat to an address.mp4": f"ffconcat version 1.0\nfile '{here}'\n",
        "concat without a header.mp4": "file target.mp4\n",
        "concat with options.mp4": "ffconcat version 1.0\nfile target.mp4\noption safe 0\n",
        "hls.m3u8": hls.format("target.mp4"),
        "hls.mp4": hls.format("target.mp4"),
        "hls to an address.mp4": hls.format(here),
        "hls to a file address.mp4": hls.format("file:target.mp4"),
        "hls of two.mp4": hls.format("concat:target.mp4|secret.txt"),
        "hls master.mp4": "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nhls.m3u8\n",
        "list.m3u": "target.mp4\n",
        "dash.mpd": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period>'
        f"<AdaptationSet><Representation><BaseURL>{here}</BaseURL></Representation>"
        "</AdaptationSet></Period></MPD>",
        "session.sdp": f"v=0\nc=IN IP4 127.0.0.1\nm=video {port} RTP/AVP 96\n",
        "list.pls": "[playlist]\nFile1=target.mp4\nNumberOfEntries=1\n",
        "list.asx": f'<asx version="3.0"><entry><ref href="{here}"/></entry></asx>',
        "list.xspf": f"<playlist><trackList><track><location>{here}</location></track>"
        "</trackList></playlist>",
        "redirect.mov": f"RTSPtext\nrtsp://127.0.0.1:{port}/a\n",
        "metadata.mp4": ";FFMETADATA1\ntitle=target.mp4\n",
        "script.vpy": "import os; os.system('touch executed')\n",
        "script.avs": 'DirectShowSource("target.mp4")\n',
        "package.xml": '<AssetMap xmlns="http://www.smpte-ra.org/schemas/429-9/2007/AM"/>',
    }
    return {name: text.encode() for name, text in texts.items()}


def addresses(port: int) -> list[str]:
    """What is not the path of a file, though FFmpeg would open it."""
    here = f"127.0.0.1:{port}/target.mp4"
    schemes = ["http", "https", "ftp", "rtsp", "rtmp", "tcp", "udp", "rtp", "srt", "gopher", "mmsh"]
    opened = [f"{scheme}://{here}" for scheme in schemes]
    inner = ["file:", "async:", "cache:", "crypto:", "concat:", "bluray:", "data:;base64,"]
    opened += [f"{scheme}target.mp4" for scheme in inner]
    opened += ["concat:target.mp4|target.mp4", "subfile,,start,0,end,0,,:target.mp4", "pipe:0", "-"]
    return [*opened, "fd:", "testsrc", "lavfi:testsrc", "file%03d.png", "a\0.mp4", "", "x" * 5000]


def other_containers() -> dict[str, Maker]:
    """Good videos in containers that are not read."""
    kinds = {
        "mpegts": ("mpeg2video", "yuv420p"),
        "mpeg": ("mpeg2video", "yuv420p"),
        "flv": ("flv", "yuv420p"),
        "nut": ("mpeg4", "yuv420p"),
        "asf": ("mpeg4", "yuv420p"),
        "m4v": ("mpeg4", "yuv420p"),
        "ivf": ("libvpx", "yuv420p"),
        "yuv4mpegpipe": ("wrapped_avframe", "yuv420p"),
        "gif": ("gif", "rgb8"),
        "apng": ("apng", "rgb24"),
    }

    def maker(kind: str, codec: str, pixels: str) -> Maker:
        return lambda path: make_video(
            path, 5, codec=codec, file_format=kind, pixels=pixels, bframes=0
        )

    usable = av.codecs_available
    return {f"{kind}.mp4": maker(kind, *how) for kind, how in kinds.items() if how[0] in usable}


def _many_tracks(raw: bytes) -> bytes:
    """An MP4 whose only track is there five hundred times, each within the limit."""
    start = raw.index(b"moov") - 4
    at = raw.index(b"trak") - 4
    track = raw[at : at + int.from_bytes(raw[at : at + 4])]
    inside = raw[start + 8 :]
    return raw[:start] + box(b"moov", inside.replace(track, track * 500))


def broken_files(good: Path) -> dict[str, bytes]:
    """Files of other kinds, and containers that are empty, endless or false."""
    mp4, mkv = (good / "a.mp4").read_bytes(), (good / "a.mkv").read_bytes()
    avi, fragments = (good / "a.avi").read_bytes(), (good / "f.mp4").read_bytes()
    moof, start = fragments.index(b"moof") - 4, mp4.index(b"moov") - 4
    run = box(b"trun", struct.pack(">II", 1, 10**8))
    header = box(b"tfhd", struct.pack(">IIII", 0x20010, 1, 1, 1))
    ebml = mkv[: mkv.index(b"\x18S\x80g")]
    return {
        "empty.mp4": b"",
        "one byte.mp4": b"\0",
        "seven bytes.mp4": b"\0\0\0\x08fty",
        "zeros.mp4": bytes(5000),
        "ones.mp4": b"\xff" * 5000,
        "noise.mp4": random.Random(1).randbytes(9000),
        "text.mp4": b"hello world\n" * 400,
        "picture.mp4": b"\x89PNG\r\n\x1a\n" + bytes(400),
        "photograph.mp4": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(400),
        "animation.mp4": b"GIF89a" + bytes(99),
        "archive.mp4": b"PK\3\4" + bytes(400),
        "program.mp4": b"\x7fELF" + bytes(400),
        "sound.mp4": b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0" + bytes(400),
        "beginning only.mp4": mp4[:40],
        "no index.mp4": mp4[:start],
        "half an index.mp4": mp4[: start + 300],
        "index only.mp4": mp4[start:],
        "no samples.mp4": mp4[: mp4.index(b"mdat") - 4] + mp4[start:],
        "unknown codec.mp4": mp4.replace(b"avc1", b"zzzz"),
        "sound track.mp4": mp4.replace(b"vide", b"soun"),
        "no track.mp4": mp4.replace(b"trak", b"free"),
        "no table.mp4": mp4.replace(b"stbl", b"free"),
        "ten million samples.mp4": patched(mp4, b"stsz", 4, 1, 10**7),
        "all the samples.mp4": patched(mp4, b"stsz", 4, 1, 2**32 - 1),
        "hundred million in a run.mp4": fragments[:moof] + box(b"moof", box(b"traf", header, run)),
        "thousand runs.mp4": fragments[:moof] + box(b"moof", box(b"traf", header, run * 1000)),
        "four million by edits.mp4": edited(mp4, [(960, 0)] * 170_000),
        "four million from afar.mp4": edited(mp4, [(40, 9000)] * 46_000, wide=True),
        "edits of many tracks.mp4": _many_tracks(edited(mp4, [(960, 0)] * 800)),
        "compressed index.mp4": box(b"ftyp", b"qt  ") + box(b"moov", box(b"cmov", bytes(99))),
        "endless box.mp4": mp4[:start] + b"\0\0\0\1moov" + b"\xff" * 8,
        "box of seven.mp4": b"\0\0\0\7moov" * 99,
        "deep.mp4": mp4[:start] + b"".join(struct.pack(">I", 9**6) + b"moov" for _ in range(5000)),
        "sound of raw bytes.avi": avi.replace(b"vids", b"auds"),
        "shuffled.mp4": mp4[start:] + mp4[:start],
        "ebml only.mkv": ebml,
        "no tracks.mkv": ebml + b"\x18S\x80g\x80",
        "not ebml.mkv": b"\x1aE\xdf\xa3",
        "endless element.mkv": ebml
        + b"\x18S\x80g\x01\xff\xff\xff\xff\xff\xff\xff\x15I\xa9f\x08"
        + b"\xff" * 90,
        "deep.mkv": ebml
        + b"\x18S\x80g\x01"
        + b"\xff" * 7
        + b"\x1f\x43\xb6\x75\x10\xff\xff\xff" * 3000,
        "unknown codec.mkv": mkv.replace(b"V_MPEG4/ISO/AVC", b"V_NOTHING/AT/AL"),
        "tracks only.mkv": mkv[: mkv.index(b"\x1f\x43\xb6\x75")],
        "header only.avi": avi[:12],
        "no frames.avi": avi[: avi.index(b"movi")],
        "half a header.avi": avi[:200],
        "endless chunk.avi": avi[:12] + b"LIST\xff\xff\xff\xff" + avi[20:200],
    }
