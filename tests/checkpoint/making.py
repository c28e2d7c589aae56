"""Files for the tests, byte by byte: safetensors, zip archives, pickles as torch writes them."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CODES = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64",
    "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "bool": "BOOL",
}  # fmt: skip
STORAGES = {
    "float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "float64": "Double",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool",
}  # fmt: skip
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

GOOD: dict[str, Array] = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bias": np.array([1.0, -2.0, 0.5, 4.0], np.float32),
}


# --- safetensors ---------------------------------------------------------------------------------


def safetensors_bytes(tensors: Mapping[str, Array], metadata: object = None) -> bytes:
    """A well-formed file of `tensors`."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    body = b""
    for name, array in tensors.items():
        raw = array.tobytes()
        header[name] = entry(
            CODES[array.dtype.name], list(array.shape), [len(body), len(body) + len(raw)]
        )
        body += raw
    return with_header(json.dumps(header).encode(), body)


def entry(dtype: object, shape: object, offsets: object) -> dict[str, object]:
    """One tensor of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def with_header(header: bytes, body: bytes = b"") -> bytes:
    """A file with any header at all."""
    return struct.pack("<Q", len(header)) + header + body


# --- pickle --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Name:
    """A global, by module and name."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """`function(*arguments)`."""

    function: object
    arguments: tuple[object, ...]


@dataclass(frozen=True)
class Ordered:
    """An `OrderedDict`, with the `_metadata` a state dict carries."""

    items: Mapping[str, object]
    state: object = None


@dataclass(frozen=True)
class Reference:
    """A persistent id."""

    identity: object


@dataclass(frozen=True)
class Raw:
    """Operations as they are."""

    code: bytes


@dataclass
class Emitter:
    """Writes values as a pickle of one protocol, remembering text as a pickler does."""

    protocol: int = 2
    memo: dict[str, int] = field(default_factory=dict)

    def program(self, value: object) -> bytes:
        body = self.emit(value) + b"."
        if self.protocol >= 4:
            return b"\x80" + bytes([self.protocol]) + b"\x95" + struct.pack("<Q", len(body)) + body
        return (b"\x80" + bytes([self.protocol]) if self.protocol >= 2 else b"") + body

    def emit(self, value: object) -> bytes:
        match value:
            case Raw():
                return value.code
            case None:
                return b"N"
            case bool():
                if self.protocol < 2:
                    return b"I01\n" if value else b"I00\n"
                return b"\x88" if value else b"\x89"
            case int():
                return self._integer(value)
            case float():
                return b"G" + struct.pack(">d", value)
            case str():
                return self._text(value)
            case tuple():
                return self._tuple(value)
            case list():
                return b"](" + b"".join(map(self.emit, value)) + b"e"
            case dict():
                return b"}" + self._items(value)
            case Name():
                return self._name(value)
            case Call():
                return self.emit(value.function) + self._tuple(value.arguments) + b"R"
            case Ordered():
                made = self.emit(Call(Name("collections", "OrderedDict"), ()))
                items = self._items(value.items)
                return made + items + (self.emit(value.state) + b"b" if value.state else b"")
            case Reference():
                return self.emit(value.identity) + b"Q"
        raise TypeError(f"cannot emit {type(value)}")

    def _integer(self, value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes([value])
        if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        if self.protocol < 2:
            return f"L{value}L\n".encode()
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw

    def _text(self, value: str) -> bytes:
        if value in self.memo:
            return b"j" + struct.pack("<I", self.memo[value])
        raw = value.encode()
        index = self.memo[value] = len(self.memo)
        if self.protocol >= 4:
            short = len(raw) < 256
            head = b"\x8c" + bytes([len(raw)]) if short else b"X" + struct.pack("<I", len(raw))
            return head + raw + b"\x94"
        return b"X" + struct.pack("<I", len(raw)) + raw + b"r" + struct.pack("<I", index)

    def _tuple(self, value: tuple[object, ...]) -> bytes:
        body = b"".join(map(self.emit, value))
        if not value:
            return b")"
        if self.protocol >= 2 and len(value) <= 3:
            return body + bytes([0x84 + len(value)])
        return b"(" + body + b"t"

    def _items(self, items: Mapping[Any, object]) -> bytes:
        pairs = b"".join(self.emit(key) + self.emit(value) for key, value in items.items())
        return b"(" + pairs + b"u" if pairs else b""

    def _name(self, value: Name) -> bytes:
        if self.protocol >= 4:
            return self._text(value.module) + self._text(value.name) + b"\x93"
        return f"c{value.module}\n{value.name}\n".encode()


def storage(kind: str, key: str, count: object) -> Reference:
    """The persistent id of a storage."""
    return Reference(("storage", Name("torch", f"{kind}Storage"), key, "cpu", count))


def tensor(
    held: object, shape: Sequence[int], strides: Sequence[int] | None = None, offset: object = 0
) -> Call:
    """A tensor as torch describes it, on the storage `held`."""
    if strides is None:
        strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    hooks = Ordered({})
    arguments = (held, offset, tuple(shape), tuple(strides), False, hooks)
    return Call(Name("torch._utils", "_rebuild_tensor_v2"), arguments)


# --- zip -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """One record of a zip file; what is not given is right."""

    name: str | bytes
    data: bytes = b""
    method: int = 0
    flags: int = 0
    checksum: int | None = None
    size: int | None = None
    offset: int | None = None
    local_name: bytes | None = None

    @property
    def raw_name(self) -> bytes:
        return self.name if isinstance(self.name, bytes) else self.name.encode()


def zip_bytes(records: Sequence[Record], *, large: bool = False, count: int | None = None) -> bytes:
    """A zip file. `large` writes the end twice, in 64 bits first, as torch does."""
    body, directory = bytearray(), bytearray()
    for record in records:
        checksum = zlib.crc32(record.data) if record.checksum is None else record.checksum
        size = len(record.data) if record.size is None else record.size
        offset = len(body) if record.offset is None else record.offset
        local = record.raw_name if record.local_name is None else record.local_name
        common = (record.flags, record.method, 0, 0, checksum, len(record.data), size)
        body += struct.pack("<4s5H3I2H", b"PK\x03\x04", 0, *common, len(local), 0)
        body += local + record.data
        lengths = (len(record.raw_name), 0, 0, 0, 0, 0, offset)
        directory += struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 0, 0, *common, *lengths)
        directory += record.raw_name
    number = len(records) if count is None else count
    end = bytearray()
    position = len(body) + len(directory)
    if large:
        wide = (44, 0, 45, 0, 0, number, number, len(directory), len(body))
        end += struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", *wide)
        end += struct.pack("<4sIQI", b"PK\x06\x07", 0, position, 1)
    narrow = min(number, 0xFFFF)
    end += struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, narrow, narrow, len(directory), len(body), 0
    )
    return bytes(body + directory + end)


# --- the whole of a .pt --------------------------------------------------------------------------


def torch_records(
    program: bytes, storages: Mapping[str, bytes], *, root: str = "archive"
) -> list[Record]:
    """The records `torch.save` writes, around any program and storages."""
    records = [Record(f"{root}/data.pkl", program), Record(f"{root}/byteorder", b"little")]
    records += [Record(f"{root}/data/{key}", raw) for key, raw in storages.items()]
    return [*records, Record(f"{root}/version", b"3\n")]


def torch_bytes(value: object, storages: Mapping[str, bytes], *, protocol: int = 2) -> bytes:
    """A `.pt` file that holds any value at all."""
    return zip_bytes(torch_records(Emitter(protocol).program(value), storages), large=True)


def state(tensors: Mapping[str, Array]) -> tuple[dict[str, object], dict[str, bytes]]:
    """Tensors as torch describes them, one storage each, and the storages."""
    described: dict[str, object] = {}
    storages = {}
    for index, (name, array) in enumerate(tensors.items()):
        held = storage(STORAGES[array.dtype.name], str(index), array.size)
        described[name] = tensor(held, array.shape)
        storages[str(index)] = array.tobytes()
    return described, storages


def torch_file(
    tensors: Mapping[str, Array], *, protocol: int = 2, wrapper: str | None = "model"
) -> bytes:
    """A well-formed `.pt` of `tensors`."""
    described, storages = state(tensors)
    metadata = {"_metadata": Ordered({"": {"version": 1}})}
    value: object = Ordered(described, metadata)
    return torch_bytes({wrapper: value} if wrapper else value, storages, protocol=protocol)
