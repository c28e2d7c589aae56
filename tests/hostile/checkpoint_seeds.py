"""Hostile and broken checkpoints, each a few lines: what they are is in their names.

A seed is bytes, or a function that makes something else than a plain file at a path.
"""

import json
import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from samgraph.checkpoint.transformers_names import POINTS
from tests.checkpoint import making
from tests.checkpoint.making import (
    GOOD,
    Call,
    Emitter,
    Name,
    Ordered,
    Raw,
    Record,
    Reference,
    entry,
    safetensors_bytes,
    storage,
    tensor,
    torch_bytes,
    torch_file,
    torch_records,
    with_header,
    zip_bytes,
)

Maker = Callable[[Path], None]
F32 = "F32"
FOUR = storage("Float", "0", 4)
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(60)


def good_files() -> dict[str, bytes]:
    """Files that must load: the first warms the child up."""
    half = {name: array.astype(np.float16) for name, array in GOOD.items()}
    brain = {name: array.astype(making.BFLOAT16) for name, array in GOOD.items()}
    files = {"good.pt": torch_file(GOOD), "good.safetensors": safetensors_bytes(GOOD)}
    files |= {"safetensors named.pt": safetensors_bytes(GOOD)}
    files |= {"torch named.safetensors": torch_file(GOOD), "torch named.png": torch_file(GOOD)}
    files |= {"half.safetensors": safetensors_bytes(half), "half.pt": torch_file(half)}
    files |= {"brain.safetensors": safetensors_bytes(brain), "brain.pt": torch_file(brain)}
    return files | {f"protocol {p}.pt": torch_file(GOOD, protocol=p) for p in (1, 2, 3, 4, 5)}


def bad_files() -> dict[str, bytes | Maker]:
    """Everything that must be refused."""
    return {
        **_safetensors_lengths(),
        **_safetensors_headers(),
        **_transformers(),
        **_weights(),
        **_zips(),
        **_pickles(),
        **_tensors(),
        **_other_things(),
    }


def _header(header: object, body: int) -> bytes:
    return with_header(json.dumps(header).encode(), bytes(body))


def _sparse(length: int, beginning: bytes) -> Maker:
    """A file of `length` bytes of which only the beginning is on the disk."""

    def make(path: Path) -> None:
        path.write_bytes(beginning)
        os.truncate(path, length)

    return make


def _safetensors_lengths() -> dict[str, bytes | Maker]:
    good = safetensors_bytes(GOOD)
    crowded = b'{"x":[' + b"{}," * 345_000 + b"{}]}"
    terabyte = _header({"x": entry("U8", [2**40], [0, 2**40])}, 0)
    return {
        "empty": b"",
        "7 bytes": b"\x08\0\0\0\0\0\0",
        "8 bytes": struct.pack("<Q", 2),
        "header length 0": struct.pack("<Q", 0) + b"{}",
        "header length over the file": struct.pack("<Q", len(good)) + good[8:],
        "header length 2^63": struct.pack("<Q", 2**63) + good[8:],
        "header length 2^64-1": struct.pack("<Q", 2**64 - 1) + good[8:],
        "100 MB header": _sparse(100_000_100, struct.pack("<Q", 99_999_999) + b"{"),
        "1 MB header": with_header(b'{"x":"' + b"a" * 1_000_000 + b'"}'),
        "2 MB header": with_header(b'{"x":"' + b"a" * 2_000_000 + b'"}'),
        "crowded header": with_header(crowded),
        "sparse terabyte": _sparse(2**40 + len(terabyte), terabyte),
    }  # fmt: skip


def _safetensors_headers() -> dict[str, bytes | Maker]:
    two = entry(F32, [2], [0, 8])
    one = json.dumps(two)
    deep = b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    deep_object = b'{"x":' * 10_000 + b"1" + b"}" * 10_000
    return {
        "not UTF-8": with_header(b'{"\xff\xfe":1}'),
        "not JSON": with_header(b"{not json at all}"),
        "JSON list": with_header(b"[1, 2, 3]"),
        "JSON of depth 10,000": with_header(deep),
        "JSON objects of depth 10,000": with_header(deep_object),
        "JSON with a number of 5,000 digits": with_header(b'{"x":' + b"9" * 5000 + b"}"),
        "duplicate keys": with_header(f'{{"x":{one},"x":{one}}}'.encode(), bytes(8)),
        "duplicate fields": with_header(
            b'{"x":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)
        ),
        "overlap": _header({"x": two, "y": entry(F32, [2], [4, 12])}, 12),
        "the same place twice": _header({"x": two, "y": two}, 8),
        "hole": _header({"x": two, "y": entry(F32, [1], [12, 16])}, 16),
        "hole at the start": _header({"x": entry(F32, [1], [4, 8])}, 8),
        "trailing bytes": _header({"x": two}, 9),
        "short data": _header({"x": two}, 7),
        "negative offsets": _header({"x": entry(F32, [2], [-8, 0])}, 8),
        "reversed offsets": _header({"x": entry(F32, [2], [8, 0])}, 8),
        "float offsets": _header({"x": entry(F32, [2], [0.0, 8.0])}, 8),
        "string offsets": _header({"x": entry(F32, [2], ["0", "8"])}, 8),
        "three offsets": _header({"x": entry(F32, [2], [0, 4, 8])}, 8),
        "offsets beyond 2^64": _header({"x": entry(F32, [2**62], [0, 2**64])}, 8),
        "shape overflow": _header({"x": entry(F32, [2**32, 2**32, 2**32], [0, 8])}, 8),
        "shape that overflows to its size": _header({"x": entry(F32, [2**62 + 2], [0, 8])}, 8),
        "shape is not the bytes": _header({"x": entry(F32, [3], [0, 8])}, 8),
        "negative shape": _header({"x": entry(F32, [-1, -2], [0, 8])}, 8),
        "shape of booleans": _header({"x": entry(F32, [True, 2], [0, 8])}, 8),
        "empty but endless": _header({"x": entry(F32, [2**40, 2**40, 0], [0, 0])}, 0),
        "shape is text": _header({"x": entry(F32, "2", [0, 8])}, 8),
        "rank 65": _header({"x": entry(F32, [1] * 64 + [2], [0, 8])}, 8),
        "unknown type": _header({"x": entry("F4", [2], [0, 8])}, 8),
        "type is a list": _header({"x": entry([F32], [2], [0, 8])}, 8),
        "booleans of 2": _header({"x": entry("BOOL", [2], [0, 2])}, 0) + b"\2\3",
        "no tensors": with_header(b"{}"),
        "metadata of numbers": _header({"__metadata__": {"a": 1}, "x": two}, 8),
        "entry is null": _header({"x": None}, 0),
        "extra field": _header({"x": {**two, "more": 1}}, 8),
        "key with dots": _header({"../../etc/x": two}, 8),
        "key with NUL": _header({"a\0b": two}, 8),
        "key of 1 MB": _header({"k" * 1_000_000: two}, 8),
        "empty key": _header({"": two}, 8),
    }  # fmt: skip


def _transformers() -> dict[str, bytes | Maker]:
    """Files whose names are those of the transformers library, which are renamed."""

    def named(points: dict[str, object], body: int = 8) -> bytes:
        sign = "vision_encoder.backbone.patch_embed.projection.weight"
        return _header({sign: entry(F32, [2], [0, 8]), POINTS: points}, body)

    return {
        "rows without end": named(entry(F32, [2**47 - 1, 0], [8, 8])),
        "rows without bytes": named(entry(F32, [65_535, 0], [8, 8])),
        "three rows": named(entry(F32, [3, 1], [8, 20]), 20),
        "no rows": named(entry(F32, [], [8, 12]), 12),
    }


def _weights() -> dict[str, bytes | Maker]:
    nan = {**GOOD, "bias": np.array([1, np.nan, 2, 3], np.float32)}
    infinite = {**GOOD, "bias": np.array([1, np.inf, 2, 3], np.float16)}
    huge = {**GOOD, "bias": np.array([1, 1e200, 2, 3], np.float64)}
    reshaped = {**GOOD, "bias": np.zeros((2, 2), np.float32)}
    return {
        "NaN weights": safetensors_bytes(nan),
        "NaN weights.pt": torch_file(nan),
        "infinite weights": safetensors_bytes(infinite),
        "weights beyond float32": torch_file(huge),
        "wrong shape": safetensors_bytes(reshaped),
        "missing key": safetensors_bytes({"weight": GOOD["weight"]}),
        "extra key": torch_file({**GOOD, "more": GOOD["bias"]}),
    }


def _zips() -> dict[str, bytes | Maker]:
    good = torch_file(GOOD)
    described, storages = making.state(GOOD)
    program = Emitter().program(described)
    records = torch_records(program, storages)
    flipped = bytearray(good)
    flipped[good.index(GOOD["bias"].tobytes())] ^= 1
    bomb = zlib.compress(bytes(10_000_000), 9)[2:-4]
    inner = zip_bytes([Record("r/zeros", bomb, method=8, size=10_000_000)])
    end = good.index(b"PK\x06\x06")
    return {
        "zip with no data.pkl": zip_bytes([Record("r/version", b"3")]),
        "zip with nothing": zip_bytes([]),
        "zip with two roots": zip_bytes([*records, Record("other/data.pkl", program)]),
        "zip with a .. entry": zip_bytes([*records, Record("archive/../../x", b"1")]),
        "zip with absolute entry": zip_bytes([*records, Record("/etc/x", b"1")]),
        "zip with backslashes": zip_bytes([*records, Record("archive\\x", b"1")]),
        "zip with NUL in a name": zip_bytes([*records, Record("archive/a\0b", b"1")]),
        "zip with deflated entry": zip_bytes([*records, Record("archive/x", b"\3\0", method=8)]),
        "zip with duplicate names": zip_bytes([*records, records[0]]),
        "zip in zip bomb": zip_bytes([Record("r/data.pkl", inner), Record("r/data/0", inner)]),
        "zip bomb": zip_bytes([Record("r/data.pkl", bomb, method=8, size=10_000_000)]),
        "zip bomb by overlap": zip_bytes([*records, *_overlapping(500)]),
        "CRC error": bytes(flipped),
        "without checksums": zip_bytes([Record(r.name, r.data, checksum=0) for r in records]),
        "encrypted": zip_bytes([Record(r.name, r.data, flags=1) for r in records]),
        "truncated directory": good[: end - 40],
        "truncated end": good[:-5],
        "truncated data": good[: len(good) // 2],
        "65,536 entries": zip_bytes([Record(f"r/{i}") for i in range(65_536)], large=True),
        "9,999 entries": zip_bytes([Record(f"r/{i}") for i in range(9_999)]),
        "entries that are not there": zip_bytes(records, count=999),
        "size beyond the file": zip_bytes([Record("r/data.pkl", program, size=2**31 - 1)]),
        "offset beyond the file": zip_bytes([Record("r/data.pkl", program, offset=2**31 - 1)]),
        "local name differs": zip_bytes([Record("r/data.pkl", program, local_name=b"r/other.pk")]),
        "numpy archive": zip_bytes([Record("a.npy", b"\x93NUMPY"), Record("b.npy", b"\x93NUMPY")]),
        "TorchScript archive": zip_bytes(
            [Record("m/data.pkl", b"N."), Record("m/code/a.py", b"x", method=8)]
        ),
        "unknown byte order": zip_bytes([records[0], Record("archive/byteorder", b"middle")]),
        "data.pkl of 9 MB": zip_bytes([Record("r/data.pkl", bytes(9 << 20))]),
    }


def _overlapping(count: int) -> list[Record]:
    """Many entries that all point at the first record."""
    return [Record(f"archive/data/{1000 + index}", offset=0, size=0) for index in range(count)]


def _program(program: bytes) -> bytes:
    return zip_bytes(torch_records(program, {"0": bytes(16)}))


def _pickles() -> dict[str, bytes | Maker]:
    laughs = b"](" + b"N" * 10 + b"e"
    for level in range(1, 200):
        laughs = laughs + b"q" + bytes([level]) + b"](" + (b"h" + bytes([level])) * 10 + b"e"
    return {
        "protocol 0 reference": _program(b"(dp0\nVx\nPstorage\ns."),
        "protocol 6": _program(b"\x80\x06N."),
        "protocol 255": _program(b"\x80\xffN."),
        "no STOP": _program(b"\x80\x02}"),
        "nothing at all": _program(b""),
        "STOP alone": _program(b"."),
        "bytes after STOP": _program(b"}.cos\nsystem\n)R."),
        "stack underflow": _program(b"\x80\x02R."),
        "stack underflow through a mark": _program(b"}(s."),
        "mark underflow": _program(b"\x80\x02u."),
        "memo bomb": _program(b"N" + b"\x94" * 450_000 + b"."),
        "memo of high index": _program(b"}r\xff\xff\xff\xffj\xfe\xff\xff\xff."),
        "billion laughs": _program(b"}X\x01\x00\x00\x00a" + laughs + b"s."),
        "2 GB string length": _program(b"\x80\x02X\xff\xff\xff\x7fabc."),
        "4 GB string length": _program(b"\x80\x02X\xff\xff\xff\xffabc."),
        "long integer of 255 bytes": _program(b"\x8a\xff" + b"\x7f" * 255 + b"."),
        "integer of 500 digits": _program(b"I" + b"9" * 500 + b"\n."),
        "500,000 mappings": _program(b"}" * 500_000 + b"."),
        "deep tuple as a key": _program(b"}()" + b"\x85" * 100_000 + b"Nu."),
        "deep list": _program(b"]" * 100_000 + b"a" * 99_999 + b"."),
        "a mapping in itself": _program(b"}q\x00X\x05\x00\x00\x00modelh\x00s."),
        "EXT1": _program(b"\x82\x01."),
        "NEWOBJ": _program(b"ccollections\nOrderedDict\n)\x81."),
        "BUILD on a name": _program(b"ccollections\nOrderedDict\n}b."),
        "name with a line of 1 MB": _program(b"c" + b"a" * 1_000_000 + b"\nb\n."),
        "name that is not UTF-8": _program(b"c\xff\nb\n."),
        "a list at the top": torch_bytes([1, 2], {}),
        "a number at the top": torch_bytes(7, {}),
        "an empty mapping": torch_bytes({}, {}),
        "keys that are numbers": torch_bytes({1: tensor(FOUR, (4,))}, {"0": bytes(16)}),
        "values that are text": torch_bytes({"weight": "x", "bias": "y"}, {}),
    }  # fmt: skip


def _one(described: object, raw: int = 16) -> bytes:
    return torch_bytes({"weight": described}, {"0": bytes(raw)})


def _tensors() -> dict[str, bytes | Maker]:
    rebuild = Name("torch._utils", "_rebuild_tensor_v2")
    fields = ("storage", Name("torch", "FloatStorage"), "0", "cpu", 4)
    many = {f"x{i}": tensor(storage("Float", "0", 4096), (4096,)) for i in range(1000)}
    return {
        "stride out of bounds": _one(tensor(FOUR, (2, 2), (3, 1))),
        "huge stride": _one(tensor(FOUR, (2,), (2**47,))),
        "negative stride": _one(tensor(FOUR, (4,), (-1,), offset=3)),
        "zero stride that multiplies": _one(tensor(FOUR, (1_000_000, 1_000_000), (0, 0))),
        "offset out of bounds": _one(tensor(FOUR, (2,), offset=3)),
        "negative offset": _one(tensor(FOUR, (2,), offset=-1)),
        "offset of 2^62": _one(tensor(FOUR, (2,), offset=2**62)),
        "shape of 2^40": _one(tensor(FOUR, (2**40,))),
        "negative shape.pt": _one(tensor(FOUR, (-4,), (1,))),
        "empty but endless.pt": _one(tensor(FOUR, (2**47, 2**47, 0), (1, 1, 1))),
        "rank 65.pt": _one(tensor(FOUR, [1] * 65, [1] * 65)),
        "shape and strides differ": _one(tensor(FOUR, (2, 2), (1,))),
        "shape of text": _one(Call(rebuild, (FOUR, 0, ("2",), (1,), False, Ordered({})))),
        "shape of booleans.pt": _one(Call(rebuild, (FOUR, 0, (True,), (1,), False, Ordered({})))),
        "shape is a list": _one(Call(rebuild, (FOUR, 0, [4], [1], False, Ordered({})))),
        "negated tensor": _one(
            Call(rebuild, (FOUR, 0, (4,), (1,), False, Ordered({}), {"neg": True}))
        ),
        "too few arguments": _one(Call(rebuild, (FOUR, 0))),
        "storage larger than its record": _one(tensor(storage("Float", "0", 400), (400,))),
        "storage smaller than its record": _one(tensor(storage("Float", "0", 2), (2,))),
        "storage of 2^62": _one(tensor(storage("Float", "0", 2**62), (4,))),
        "storage of a negative count": _one(tensor(storage("Float", "0", -4), (4,))),
        "storage of another type": _one(tensor(storage("Double", "0", 4), (4,))),
        "storage that is not there": _one(tensor(storage("Float", "77", 4), (4,))),
        "storage key with dots": _one(tensor(storage("Float", "../data.pkl", 4), (4,))),
        "aliasing storages": torch_bytes(many, {"0": bytes(4 * 4096)}),
        "one storage of two types": torch_bytes(
            {"weight": tensor(FOUR, (4,)), "bias": tensor(storage("Int", "0", 4), (4,))},
            {"0": bytes(16)},
        ),
        "reference of four fields": _one(tensor(Reference(fields[:4]), (4,))),
        "reference of six fields": _one(tensor(Reference((*fields, None)), (4,))),
        "reference that is text": _one(tensor(Reference("storage"), (4,))),
        "reference to a module": _one(tensor(Reference(("module", *fields[1:])), (4,))),
        "storage type is text": _one(tensor(Reference(("storage", "Float", *fields[2:])), (4,))),
        "storage count is text": _one(tensor(Reference((*fields[:4], "4")), (4,))),
        "tensor without a storage": _one(tensor(None, (4,))),
        "parameter without a tensor": _one(
            Call(Name("torch._utils", "_rebuild_parameter"), (1, 2, 3))
        ),
        "call of a storage type": _one(Call(Name("torch", "FloatStorage"), (10**9,))),
        "call of a tensor": _one(Call(tensor(FOUR, (4,)), ())),
        "booleans of 2.pt": torch_bytes(
            {"weight": tensor(storage("Bool", "0", 2), (2,))}, {"0": b"\2\3"}
        ),
        "raw junk as a value": _one(Raw(b"\xfe")),
        "key with NUL.pt": torch_bytes({"a\0b": tensor(FOUR, (4,))}, {"0": bytes(16)}),
        "key of 60 KB.pt": torch_bytes({"k" * 60_000: tensor(FOUR, (4,))}, {"0": bytes(16)}),
    }  # fmt: skip


def _other_things() -> dict[str, bytes | Maker]:
    return {
        "PNG": PNG,
        "PNG named.pt": PNG,
        "PNG named.safetensors": PNG,
        "JPEG": b"\xff\xd8\xff\xe0" + bytes(100),
        "web page": b"<!DOCTYPE html><html><title>403</title></html>",
        "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "text": b"the quick brown fox jumps over the lazy dog\n" * 9,
        "zeros": bytes(1000),
        "legacy torch file": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
        "bare pickle": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
        "pickle of protocol 0": b"cos\nsystem\n(S'true'\ntR.",
        "directory": lambda path: path.mkdir(),
        "FIFO": lambda path: os.mkfifo(path),
        "socket": _make_socket,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "random device": lambda path: path.symlink_to("/dev/urandom"),
        "dangling link": lambda path: path.symlink_to("nowhere"),
        "link to itself": lambda path: path.symlink_to(path.name),
        "no permission": _make_forbidden,
    }  # fmt: skip


def _make_socket(path: Path) -> None:
    """A socket's name in the file system, made from inside its folder: such names are short."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(before)


def _make_forbidden(path: Path) -> None:
    """A file nobody may read. The superuser may, and finds it empty."""
    path.write_bytes(b"")
    path.chmod(0)
