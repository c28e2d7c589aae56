"""The central directory of a zip file, read strictly: ambiguous files are refused.

    [header][name][padding][data] ...      the records, uncompressed
    [entry] [entry] ...                    the central directory: name, size, CRC, offset
    [zip64 end, if large] [end]            the offset of the directory

Only what tensor libraries write is accepted: one root folder, unique names, no compression, no
encryption, records that do not overlap and lie before the directory. Format: APPNOTE 4.3.
"""

import re
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

from samgraph.checkpoint.source_file import ByteArray, SourceFile
from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

MOST_ENTRIES = 10_000  # sam2.1-large has 910
MOST_DIRECTORY_BYTES = 16 << 20
LONGEST_COMMENT = 65_535

END = struct.Struct("<4s4H2IH")
END_64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR_64 = struct.Struct("<4sIQI")
ENTRY = struct.Struct("<4s6H3I5H2I")
LOCAL = struct.Struct("<4s5H3I2H")
UNSET_16, UNSET_32 = 0xFFFF, 0xFFFFFFFF
ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
STORED = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One record: its name, compression method, sizes, CRC and offset."""

    name: str
    flags: int
    method: int
    checksum: int
    packed_size: int
    size: int
    offset: int


class ZipDirectory:
    """The records of one zip file, by their name below the root folder."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._start, directory, count = _find_directory(file)
        entries = _parse_entries(directory, count, file)
        self.root = _single_root(entries, file)
        self._entries = {entry.name[len(self.root) + 1 :]: entry for entry in entries}
        if len(self._entries) != len(entries):
            _refuse(file, "has two records of one name", _first_duplicate(entries))
        self._limits = _limits(entries, self._start)

    @property
    def names(self) -> list[str]:
        """Names below the root folder, in the directory's order."""
        return list(self._entries)

    def require_plain(self) -> None:
        """Raise for compressed, encrypted or overlapping records, whether they are read or not."""
        for entry in self._entries.values():
            if entry.flags & ENCRYPTED:
                _refuse(self._file, "is encrypted", f"record `{shown(entry.name)}`")
            if entry.method != STORED:
                fault = "has a compressed record, which no checkpoint needs"
                _refuse(self._file, fault, f"record `{shown(entry.name)}`, method {entry.method}")
            if entry.packed_size != entry.size:
                fault = "is damaged: a record has two sizes"
                _refuse(self._file, fault, f"{entry.packed_size:,} and {entry.size:,} bytes")
            shortest = LOCAL.size + len(entry.name.encode()) + entry.size
            if entry.offset + shortest > self._limits[entry.offset]:
                _refuse(self._file, "has records that overlap", f"record `{shown(entry.name)}`")

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def size(self, name: str) -> int:
        """Bytes in the record `name`."""
        return self._find(name).size

    def read(self, name: str, *, limit: int) -> bytes:
        """The bytes of a small record; raises if it is larger than `limit`."""
        size = self.size(name)
        if size > limit:
            _refuse(
                self._file, f"has an oversized `{shown(name)}`", f"{size:,} bytes", f"{limit:,}"
            )
        return self.read_bytes(name).tobytes()

    def read_bytes(self, name: str) -> ByteArray:
        """A whole record as an array of bytes; its CRC is checked."""
        entry = self._find(name)
        raw = self._file.read_bytes(self._data_offset(entry), entry.size)
        checksum = zlib.crc32(raw.data)
        if checksum != entry.checksum:
            hint = "fetch or copy the file again"
            if entry.checksum == 0:
                hint = "it may have been saved without checksums: save it with them"
            raise CheckpointError(
                f"`{self._file.name}` is damaged: the checksum of `{shown(name)}` is wrong",
                got=f"{checksum:08x}",
                expected=f"{entry.checksum:08x}",
                hint=hint,
            )
        return raw

    def _find(self, name: str) -> Entry:
        if name not in self._entries:
            _refuse(self._file, f"has no record `{shown(name)}`")
        return self._entries[name]

    def _data_offset(self, entry: Entry) -> int:
        """The offset of the data, from the local header, which must agree with the directory."""
        header = LOCAL.unpack(self._file.read(entry.offset, LOCAL.size))
        signature, _, flags, method = header[:4]
        name_length, extra_length = int(header[-2]), int(header[-1])
        name_start = entry.offset + LOCAL.size
        name = self._file.read(name_start, name_length) if name_length <= 4096 else b""
        start = name_start + name_length + extra_length
        agrees = signature == b"PK\x03\x04" and method == STORED and not flags & ENCRYPTED
        if not agrees or name != entry.name.encode():
            _refuse(self._file, "is damaged: a record disagrees with the directory", entry.name)
        if start + entry.size > self._limits[entry.offset]:
            _refuse(self._file, "has records that overlap", f"record `{shown(entry.name)}`")
        return start


def _find_directory(file: SourceFile) -> tuple[int, bytes, int]:
    """The offset of the central directory, its bytes, and its number of entries."""
    end_offset, end = _find_end(file)
    _, disk, first_disk, here, count, length, start, _ = end
    if disk or first_disk or here != count:
        _refuse(file, "is one part of a zip file in several parts")
    stop = end_offset
    large = _read_end_64(file, end_offset)
    if large is not None:
        stop, count, length, start = large
    if start + length != stop:
        _refuse(file, "is damaged: its zip directory is not where it should be")
    if count > MOST_ENTRIES or length > MOST_DIRECTORY_BYTES:
        _refuse(file, "has too many records", f"{count:,}", f"at most {MOST_ENTRIES:,}")
    return start, file.read(start, length), count


def _find_end(file: SourceFile) -> tuple[int, tuple[bytes, int, int, int, int, int, int, int]]:
    """The end record: the last whose comment reaches exactly to the end of the file."""
    length = min(file.size, END.size + LONGEST_COMMENT)
    tail = file.read(file.size - length, length)
    found = len(tail)
    while (found := tail.rfind(b"PK\x05\x06", 0, found)) >= 0:
        if found + END.size <= len(tail):
            end = END.unpack_from(tail, found)
            if found + END.size + end[-1] == len(tail):
                return file.size - length + found, end
    raise CheckpointError(
        f"`{file.name}` is cut short: its zip directory is missing",
        got=f"{file.size:,} bytes",
        hint="fetch or copy the file again",
    )


def _read_end_64(file: SourceFile, end_offset: int) -> tuple[int, int, int, int] | None:
    """The zip64 end record, if there is one: its offset, entry count, directory size and offset."""
    locator = end_offset - LOCATOR_64.size
    if locator < END_64.size:
        return None
    signature, disk, offset, disks = LOCATOR_64.unpack(file.read(locator, LOCATOR_64.size))
    if signature != b"PK\x06\x07":
        return None
    if disk or disks > 1 or offset + END_64.size != locator:
        _refuse(file, "is damaged: its zip64 directory is not where it should be")
    end = END_64.unpack(file.read(offset, END_64.size))
    signature, size, _, _, disk, first_disk, here, count, length, start = end
    if signature != b"PK\x06\x06" or size != END_64.size - 12 or disk or first_disk:
        _refuse(file, "is damaged: its zip64 directory is not where it should be")
    if here != count:
        _refuse(file, "is one part of a zip file in several parts")
    return offset, count, length, start


def _parse_entries(directory: bytes, count: int, file: SourceFile) -> list[Entry]:
    """The entries of the directory, which must be exactly `count`."""
    entries = []
    position = 0
    for _ in range(count):
        if position + ENTRY.size > len(directory):
            _refuse(file, "is damaged: its zip directory ends early")
        fields = ENTRY.unpack_from(directory, position)
        signature, _, _, flags, method, _, _, checksum, packed, size, *rest = fields
        name_length, extra_length, comment_length, disk, _, _, offset = rest
        name_start = position + ENTRY.size
        extra_start = name_start + name_length
        position = extra_start + extra_length + comment_length
        if signature != b"PK\x01\x02" or position > len(directory) or disk not in (0, UNSET_16):
            _refuse(file, "is damaged: its zip directory cannot be read")
        name = _check_record_name(directory[name_start:extra_start], file)
        extra = directory[extra_start : extra_start + extra_length]
        size, packed, offset = _widen((size, packed, offset), extra, file)
        entries.append(Entry(name, flags, method, checksum, packed, size, offset))
    if position != len(directory):
        _refuse(file, "is damaged: its zip directory has more than its entries")
    return entries


def _widen(fields: tuple[int, int, int], extra: bytes, file: SourceFile) -> list[int]:
    """The fields with those of 0xFFFFFFFF replaced by their 64-bit values in `extra`."""
    wide = list(fields)
    missing = [index for index, value in enumerate(fields) if value == UNSET_32]
    position = 0
    while missing and position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4
        if kind == 1:
            if length < 8 * len(missing) or position + length > len(extra):
                break
            for i, index in enumerate(missing):
                wide[index] = struct.unpack_from("<Q", extra, position + 8 * i)[0]
            return wide
        position += length
    if missing:
        _refuse(file, "is damaged: a large record has no 64-bit size")
    return wide


def _check_record_name(raw: bytes, file: SourceFile) -> str:
    """A name that stays inside the archive, as text."""
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        _refuse(file, "has a record whose name is not UTF-8", shown(raw[:60].hex(" ")))
    parts = name.split("/")
    outside = name.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", name)
    if outside or "\\" in name or not name.isprintable() or not name or len(name) > 1024:
        _refuse(file, "has a record with an unsafe name", f"`{shown(name)}`")
    return name


def _single_root(entries: list[Entry], file: SourceFile) -> str:
    """The one folder that holds every record."""
    roots = {entry.name.partition("/")[0] for entry in entries if "/" in entry.name}
    loose = next((entry.name for entry in entries if "/" not in entry.name), None)
    if loose is not None:
        _refuse(file, "is a zip file, but not a checkpoint", f"a loose record `{shown(loose)}`")
    if len(roots) != 1:
        names = ", ".join(f"`{shown(root)}`" for root in sorted(roots)[:3])
        _refuse(file, "does not have one root folder", names or "no records")
    return roots.pop()


def _limits(entries: list[Entry], directory_start: int) -> dict[int, int]:
    """For each record's offset, the offset of the next record or of the directory."""
    offsets = sorted(entry.offset for entry in entries)
    limits = dict(zip(offsets, [*offsets[1:], directory_start], strict=True))
    # Of two records at one offset the first has no room, and is refused as overlapping.
    limits.update({a: a for a, b in pairwise(offsets) if a == b})
    return limits


def _first_duplicate(entries: list[Entry]) -> str:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            return f"`{shown(entry.name)}`"
        seen.add(entry.name)
    return ""


def _refuse(
    file: SourceFile, fault: str, got: str | None = None, expected: str | None = None
) -> NoReturn:
    raise CheckpointError(f"`{file.name}` {fault}", got=got, expected=expected)
