"""An interpreter of the subset of pickle opcodes that `torch.save` writes.

The result is plain data: text, numbers, tuples, lists, mappings, and the records of
`pickle_records`. No opcode imports or calls an object, so a hostile file has nothing to exploit.
Opcodes that `torch.save` does not write are refused.

Protocols 1 to 5 are read. (Protocol 0 cannot hold a tensor: its references must be text.)
"""

import struct
from collections.abc import Callable
from typing import NoReturn

from samgraph.checkpoint.pickle_records import call_record, name_record, storage_record
from samgraph.errors import CheckpointError
from samgraph.untrusted.text import shown

MOST_OPCODES = 200_000  # sam2.1-large has 39,000
MOST_PROGRAM_BYTES = 8 << 20
LONGEST_TEXT = 64 << 10
LONGEST_LINE = 512
LONGEST_INTEGER = 8
NEWEST_PROTOCOL = 5

# Names of the opcodes that are not supported, for error messages.
UNREAD = {
    **dict(zip(b"01FdgilopPSTUV2BC", (
        "POP", "POP_MARK", "FLOAT", "DICT", "GET", "INST", "LIST", "OBJ", "PUT", "PERSID",
        "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "DUP", "BINBYTES", "SHORT_BINBYTES",
    ), strict=True)),
    0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x8B: "LONG4",
    0x8D: "BINUNICODE8", 0x8E: "BINBYTES8", 0x8F: "EMPTY_SET", 0x90: "ADDITEMS",
    0x91: "FROZENSET", 0x92: "NEWOBJ_EX", 0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}  # fmt: skip


class PickleMachine:
    """Interprets one pickle. Every operand is checked against the remaining bytes."""

    def __init__(self, program: bytes, source: str) -> None:
        self.program, self.source = program, source
        self.position = 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        """The unpickled value."""
        if len(self.program) > MOST_PROGRAM_BYTES:
            self.refuse(f"has {len(self.program):,} bytes, more than {MOST_PROGRAM_BYTES:,}")
        for _ in range(MOST_OPCODES):
            code = self.take(1)[0]
            if code == STOP:
                break
            rule = RULES.get(code)
            if rule is None:
                self.refuse_opcode(code)
            rule(self)
        else:
            self.refuse(f"has more than {MOST_OPCODES:,} opcodes")
        return self.finish()

    def finish(self) -> object:
        """The single value left on the stack."""
        if len(self.stack) != 1 or self.marks or self.position != len(self.program):
            self.refuse("ends with more or less than one value")
        return self.stack[0]

    def refuse(self, fault: str) -> NoReturn:
        """Raise `CheckpointError` with what is wrong with the pickle."""
        raise CheckpointError(
            f"`{self.source}` is damaged or was not made by `torch.save`: its pickle {fault}",
            got=f"byte {self.position:,} of {len(self.program):,}",
        )

    def refuse_opcode(self, code: int) -> NoReturn:
        """Raise for an unsupported opcode; for one that imports, name what it imports."""
        if code == ord("i"):
            name_record(self.line(), self.line(), self.source)
        self.refuse(f"uses the opcode `{UNREAD.get(code, f'0x{code:02x}')}`, which is not read")

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self.position + count
        if end > len(self.program):
            self.refuse(f"ends where {count:,} more bytes should be")
        taken = self.program[self.position : end]
        self.position = end
        return taken

    def line(self) -> str:
        """Text up to the next end of line."""
        end = self.program.find(b"\n", self.position, self.position + LONGEST_LINE)
        if end < 0:
            self.refuse("has a line without an end")
        raw = self.take(end - self.position)
        self.position += 1
        return self.decode(raw)

    def text(self, length: int) -> str:
        """The next `length` bytes as text."""
        if length > LONGEST_TEXT:
            self.refuse(f"has a text of {length:,} bytes, more than {LONGEST_TEXT:,}")
        return self.decode(self.take(length))

    def decode(self, raw: bytes) -> str:
        """UTF-8 bytes as text."""
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.refuse("has text that is not UTF-8")

    def push(self, value: object) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self) -> object:
        """Pop the top of the stack, which must be above the last mark."""
        self.top()
        return self.stack.pop()

    def top(self) -> object:
        """The top of the stack, not popped."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            self.refuse("takes a value from an empty stack")
        return self.stack[-1]

    def pop_to_mark(self) -> list[object]:
        """Pop everything above the last mark, and the mark."""
        if not self.marks:
            self.refuse("looks for a mark that was not set")
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def recall(self, index: int) -> None:
        """Push a memoised value."""
        if index not in self.memo:
            self.refuse(f"recalls value {index:,}, which was never stored")
        self.push(self.memo[index])

    def number(self, layout: struct.Struct) -> int:
        """An unsigned or signed operand of fixed size."""
        return int(layout.unpack(self.take(layout.size))[0])


U8, U16, U32, I32 = (struct.Struct(layout) for layout in ("<B", "<H", "<I", "<i"))
U64, F64 = struct.Struct("<Q"), struct.Struct(">d")
STOP = ord(".")


def _protocol(machine: PickleMachine) -> None:
    version = machine.take(1)[0]
    if version > NEWEST_PROTOCOL:
        machine.refuse(f"is of protocol {version}, newer than {NEWEST_PROTOCOL}")


def _frame(machine: PickleMachine) -> None:
    length = machine.number(U64)
    if length > len(machine.program) - machine.position:
        machine.refuse(f"has a frame of {length:,} bytes, more than are left")


def _integer_line(machine: PickleMachine) -> None:
    """`I01` and `I00` are protocol 1's true and false."""
    digits = machine.line()
    if digits in ("00", "01"):
        machine.push(digits == "01")
    else:
        machine.push(_integer(machine, digits))


def _long_line(machine: PickleMachine) -> None:
    machine.push(_integer(machine, machine.line().removesuffix("L")))


def _integer(machine: PickleMachine, digits: str) -> int:
    if len(digits) > 20 or not digits.removeprefix("-").isdecimal():
        machine.refuse(f"has a number `{shown(digits)}` that is not one")
    return int(digits)


def _long_bytes(machine: PickleMachine) -> None:
    length = machine.take(1)[0]
    if length > LONGEST_INTEGER:
        machine.refuse(f"has an integer of {length} bytes")
    machine.push(int.from_bytes(machine.take(length), "little", signed=True))


def _name_lines(machine: PickleMachine) -> None:
    machine.push(name_record(machine.line(), machine.line(), machine.source))


def _name_stack(machine: PickleMachine) -> None:
    name, module = machine.pop(), machine.pop()
    if type(name) is not str or type(module) is not str:
        machine.refuse("has a name that is not text")
    machine.push(name_record(module, name, machine.source))


def _call(machine: PickleMachine) -> None:
    arguments, function = machine.pop(), machine.pop()
    machine.push(call_record(function, arguments, machine.source))


def _build(machine: PickleMachine) -> None:
    """State dicts carry `_metadata`, the versions of their modules: read, and dropped."""
    state, target = machine.pop(), machine.top()
    if type(target) is not dict or type(state) is not dict:
        machine.refuse("sets the state of something that is not a mapping")


def _tuple(count: int) -> Callable[[PickleMachine], None]:
    def push_tuple(machine: PickleMachine) -> None:
        values = [machine.pop() for _ in range(count)]
        machine.push(tuple(reversed(values)))

    return push_tuple


def _append(machine: PickleMachine, values: list[object]) -> None:
    target = machine.top()
    if type(target) is not list:
        machine.refuse("appends to something that is not a list")
    target.extend(values)


def _set_items(machine: PickleMachine, values: list[object]) -> None:
    target = machine.top()
    if type(target) is not dict or len(values) % 2:
        machine.refuse("sets items of something that is not a mapping")
    for key, value in zip(values[::2], values[1::2], strict=True):
        # Only text and numbers as keys: hashing a deeply nested tuple can overflow the stack.
        if type(key) is not str and type(key) is not int:
            machine.refuse("has a mapping whose key is neither text nor a number")
        if key in target:
            machine.refuse(f"sets the key `{shown(str(key))}` twice")
        target[key] = value


def _set_item(machine: PickleMachine) -> None:
    value, key = machine.pop(), machine.pop()
    _set_items(machine, [key, value])


def _remember(machine: PickleMachine, index: int) -> None:
    machine.memo[index] = machine.top()


def _float(machine: PickleMachine) -> None:
    machine.push(F64.unpack(machine.take(8))[0])


RULES: dict[int, Callable[[PickleMachine], None]] = {
    0x80: _protocol,
    0x95: _frame,
    ord("("): lambda machine: machine.marks.append(len(machine.stack)),
    ord("N"): lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    ord("K"): lambda machine: machine.push(machine.number(U8)),
    ord("M"): lambda machine: machine.push(machine.number(U16)),
    ord("J"): lambda machine: machine.push(machine.number(I32)),
    ord("I"): _integer_line,
    ord("L"): _long_line,
    0x8A: _long_bytes,
    ord("G"): _float,
    0x8C: lambda machine: machine.push(machine.text(machine.number(U8))),
    ord("X"): lambda machine: machine.push(machine.text(machine.number(U32))),
    ord(")"): lambda machine: machine.push(()),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("t"): lambda machine: machine.push(tuple(machine.pop_to_mark())),
    ord("]"): lambda machine: machine.push([]),
    ord("a"): lambda machine: _append(machine, [machine.pop()]),
    ord("e"): lambda machine: _append(machine, machine.pop_to_mark()),
    ord("}"): lambda machine: machine.push({}),
    ord("s"): _set_item,
    ord("u"): lambda machine: _set_items(machine, machine.pop_to_mark()),
    ord("q"): lambda machine: _remember(machine, machine.number(U8)),
    ord("r"): lambda machine: _remember(machine, machine.number(U32)),
    0x94: lambda machine: _remember(machine, len(machine.memo)),
    ord("h"): lambda machine: machine.recall(machine.number(U8)),
    ord("j"): lambda machine: machine.recall(machine.number(U32)),
    ord("c"): _name_lines,
    0x93: _name_stack,
    ord("Q"): lambda machine: machine.push(storage_record(machine.pop(), machine.source)),
    ord("R"): _call,
    ord("b"): _build,
}
