"""Ways to change bytes, JSON and text so that a reader is reached deep inside."""

import random
import struct
from collections.abc import Sequence
from typing import Any

NUMBERS = (
    0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 63, 64, 127, 128, 255, 256, 1023, 4096, 65_535, 65_536, 2**20,
    2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**47, 2**48, 2**62, 2**63 - 1, 2**63, 2**64,
    10**18, 10**30, 10**400,
)  # fmt: skip
WORDS = (
    "", "a", "..", "../../x", "/etc/passwd", "\0", "\x1b[2J", "\ud800", "\udcff", "é", "\u202e",
    "a" * 300, "NaN", "-0", "1e999", "0x10", "None", "__proto__", "{}", "[]", "%s%s%n", "[/red]",
)  # fmt: skip
JUNK: tuple[Any, ...] = (
    None, True, False, -1, 0.5, -0.0, 1e308, float("nan"), float("inf"), [], {}, [[]], [None], [0],
    {"": None}, *NUMBERS, *WORDS,
)  # fmt: skip
PIECES = (
    "(", ")", "[", "]", "{", "}", ",", ":", "=", "%", "#", "*", "+", "-", "//", '"', "\\", "\n",
    " ", "<", ">", "&", ";", ".", "0x", "e9", "\r", "\t", "\0", "\x1b", "\x9b", "\ufeff", "\udc80",
)  # fmt: skip


def mutate_bytes(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """A few changes anywhere: bits, bytes, numbers; pieces cut, doubled, moved, or of another."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8, 30))):
        if not out:
            return bytes(rng.randbytes(rng.randrange(40)))
        at, length = rng.randrange(len(out)), rng.choice((1, 2, 4, 8, 30, 200))
        match rng.randrange(9):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            case 2:
                del out[at : at + length]
            case 3:
                out[at:at] = out[at : at + length] * rng.choice((1, 1, 2, 50))
            case 4:
                start = rng.randrange(len(out))
                out[at : at + length] = out[start : start + length]
            case 5:
                number = rng.choice(NUMBERS) & (2**64 - 1)
                form = rng.choice(("<I", ">I", "<Q", ">Q", "<H", ">H"))
                raw = struct.pack(form, number & (256 ** struct.calcsize(form) - 1))
                out[at : at + len(raw)] = raw
            case 6:
                del out[at:]
            case 7:
                out[at : at + length] = bytes(length)
            case 8:
                other = rng.choice(others) if others else rng.randbytes(64)
                start = rng.randrange(len(other) + 1)
                out[at : at + rng.choice((0, length))] = other[start : start + length]
    return bytes(out)


def mutate_json(rng: random.Random, value: Any) -> Any:
    """A value with some of its parts replaced, dropped, repeated, moved or renamed."""
    value = _copied(value)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        positions = list(_positions(value))
        if not positions:
            return rng.choice(JUNK)
        inside, key = rng.choice(positions)
        match rng.randrange(8):
            case 0 | 1 | 2:
                inside[key] = _copied(rng.choice(JUNK))
            case 3:
                inside.pop(key)
            case 4:
                other, name = rng.choice(positions)
                if not _holds(other[name], inside):
                    inside[key] = _copied(other[name])
            case 5:
                if isinstance(inside, dict):
                    inside[rng.choice(WORDS)] = inside.pop(key)
                else:
                    inside += _copied(inside[:1]) * rng.choice((1, 3, 100))
            case 6:
                inside[key] = _nested(inside[key], rng.choice((1, 2, 40, 80)))
            case 7:
                number = inside[key]
                if isinstance(number, int | float) and not isinstance(number, bool):
                    inside[key] = rng.choice((-number, number + 1, number * 2, number // 3))
    return value


def mutate_text(rng: random.Random, text: str) -> str:
    """Text with numbers, words, brackets and lines changed."""
    for _ in range(rng.choice((1, 1, 2, 3, 10))):
        at = rng.randrange(len(text) + 1)
        length = rng.choice((1, 1, 2, 5, 20, 100))
        match rng.randrange(8):
            case 0:
                text = text[:at] + rng.choice(PIECES) * rng.choice((1, 1, 2, 100, 5000)) + text[at:]
            case 1:
                text = text[:at] + text[at + length :]
            case 2:
                text = text[:at] + str(rng.choice(JUNK))[:500] + text[at + rng.choice((0, 1)) :]
            case 3:
                start = rng.randrange(len(text) + 1)
                text = text[:at] + text[start : start + length] + text[at:]
            case 4:
                lines = text.split("\n")
                lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
                text = "\n".join(lines)
            case 5:
                lines = text.split("\n")
                lines.pop(rng.randrange(len(lines)))
                text = "\n".join(lines)
            case 6:
                text = text[:at] + text[at : at + length] * rng.choice((2, 30)) + text[at:]
            case 7:
                text = _another_number(rng, text)
    return text[: 1 << 20]


def joined(parts: Sequence[bytes]) -> bytes:
    """Several files as one input."""
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def separated(data: bytes) -> list[bytes]:
    """The files of an input that `joined` made."""
    parts = []
    while data:
        end = 4 + int.from_bytes(data[:4])
        parts.append(data[4:end])
        data = data[end:]
    return parts


def _another_number(rng: random.Random, text: str) -> str:
    digits = [index for index, letter in enumerate(text) if letter.isdigit()]
    if not digits:
        return text
    at = rng.choice(digits)
    end = at
    while end < len(text) and text[end].isdigit():
        end += 1
    return text[:at] + str(rng.choice(NUMBERS)) + text[end:]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def _positions(value: Any, depth: int = 0) -> Any:
    """Every container with every key or index in it, a few levels deep."""
    if depth > 12 or not isinstance(value, dict | list):
        return
    for key in list(value) if isinstance(value, dict) else range(min(len(value), 50)):
        yield value, key
        yield from _positions(value[key], depth + 1)


def _holds(outer: Any, inner: Any) -> bool:
    return outer is inner or any(inside[key] is inner for inside, key in _positions(outer))


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value
