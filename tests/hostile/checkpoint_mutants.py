"""Mutants of good checkpoints: changed where the structure is, so that they reach deep."""

import json
import random
import struct
from collections.abc import Callable

import numpy as np

from tests.checkpoint import making

TENSORS: dict[str, making.Array] = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bias": np.array([1.0, 2.0, 3.0, 4.0], making.BFLOAT16),
    "flags": np.array([True, False]),
    "count": np.array(7, np.int64),
}
NUMBERS = (
    -1, 0, 1, 2, 3, 4, 5, 8, 16, 63, 64, 65, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**47, 2**48, 2**63 - 1, 2**63, 2**64, 10**30,
)  # fmt: skip
JUNK: tuple[object, ...] = (
    "",
    "F32",
    "BF16",
    "I64",
    "BOOL",
    None,
    True,
    1.5,
    [],
    {},
    [1],
    "..",
    "weight",
    "a\0",
)
OPERATIONS = (
    bytes(range(256)) + b"(NKMJX)tae]}suqrhjcQRb.\x80\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95" * 6
)

SAFETENSORS = making.safetensors_bytes(TENSORS, {"format": "pt"})
TORCH = making.torch_file(TENSORS)
DESCRIBED, STORAGES = making.state(TENSORS)
PROGRAMS = [making.Emitter(p).program({"model": making.Ordered(DESCRIBED)}) for p in (1, 2, 4)]

Mutator = Callable[[random.Random], bytes]


def mutate(generator: random.Random) -> bytes:
    """One mutant."""
    return generator.choice(MUTATORS)(generator)


def change_bytes(generator: random.Random, raw: bytes, most: int = 4) -> bytes:
    """Flip, overwrite, cut out, double or move a few bytes."""
    data = bytearray(raw)
    for _ in range(generator.randint(1, most)):
        if not data:
            break
        position = generator.randrange(len(data))
        length = generator.choice((1, 1, 2, 4, 8, 30))
        piece = bytes(data[position : position + length])
        match generator.randrange(6):
            case 0:
                data[position] ^= 1 << generator.randrange(8)
            case 1:
                data[position] = generator.randrange(256)
            case 2:
                del data[position : position + length]
            case 3:
                data[position:position] = piece
            case 4:
                other = generator.randrange(len(data))
                data[other : other + len(piece)] = piece
            case 5:
                number = generator.choice(NUMBERS) & (2**64 - 1)
                data[position : position + 4] = struct.pack("<Q", number)[:4]
    return bytes(data)


def safetensors_header(generator: random.Random) -> bytes:
    """Change one thing in the header as JSON, and keep the rest right."""
    length = struct.unpack_from("<Q", SAFETENSORS)[0]
    header = json.loads(SAFETENSORS[8 : 8 + length])
    name = generator.choice(list(header))
    entry = header[name]
    field = generator.choice([*entry, name])
    value: object = generator.choice((*NUMBERS, *JUNK))
    if isinstance(entry.get(field), list) and entry[field] and generator.random() < 0.8:
        entry[field][generator.randrange(len(entry[field]))] = value
    elif field == name:
        header[str(value)] = header.pop(name)
    else:
        entry[field] = value
    body = SAFETENSORS[8 + length :]
    text = json.dumps(header).encode()
    if generator.random() < 0.3:
        text = change_bytes(generator, text, 2)
    return making.with_header(text, body[: generator.choice((len(body), len(body), 3))])


def safetensors_raw(generator: random.Random) -> bytes:
    """Change bytes anywhere in the file."""
    return change_bytes(generator, SAFETENSORS)


def torch_program(generator: random.Random) -> bytes:
    """Change the pickle and give it a right checksum, so that it is run."""
    program = bytearray(generator.choice(PROGRAMS))
    for _ in range(generator.randint(1, 3)):
        position = generator.randrange(len(program))
        operation = bytes([generator.choice(OPERATIONS)])
        match generator.randrange(3):
            case 0:
                program[position : position + 1] = operation
            case 1:
                program[position:position] = operation
            case 2:
                program = bytearray(change_bytes(generator, bytes(program), 1)) or program
    return making.zip_bytes(making.torch_records(bytes(program), STORAGES))


def torch_numbers(generator: random.Random) -> bytes:
    """Change one number of one tensor: offset, shape, stride, count or key."""
    value = generator.choice(NUMBERS)
    if abs(value) >= 2**63:
        value = generator.randrange(10)
    kind = generator.choice(list(making.STORAGES.values()))
    sizes = [generator.choice((0, 1, 2, 3, value)) for _ in range(generator.randrange(5))]
    strides = [generator.choice((0, 1, 2, value)) for _ in sizes]
    held = making.storage(kind, generator.choice("0123"), generator.choice((value, 1, 2, 4, 6)))
    changed = making.tensor(held, sizes, strides, generator.choice((0, 0, 1, value)))
    return making.torch_bytes({**DESCRIBED, "weight": changed}, STORAGES)


def torch_raw(generator: random.Random) -> bytes:
    """Change bytes anywhere in the file."""
    return change_bytes(generator, TORCH)


def torch_directory(generator: random.Random) -> bytes:
    """Change bytes of the zip directory and its end only."""
    start = TORCH.index(b"PK\x01\x02")
    return TORCH[:start] + change_bytes(generator, TORCH[start:], 2)


def truncated(generator: random.Random) -> bytes:
    """Cut a good file short, or add to it."""
    raw = generator.choice((TORCH, SAFETENSORS))
    if generator.random() < 0.2:
        return raw + generator.randbytes(generator.randrange(1, 40))
    return raw[: generator.randrange(len(raw))]


MUTATORS: tuple[Mutator, ...] = (
    safetensors_header,
    safetensors_header,
    safetensors_raw,
    torch_program,
    torch_program,
    torch_numbers,
    torch_raw,
    torch_directory,
    truncated,
)
