import struct

import pytest

from samgraph.checkpoint.pickle_machine import MOST_OPCODES, PickleMachine
from samgraph.errors import CheckpointError
from tests.checkpoint.making import Call, Emitter, Name, Ordered, Raw


def run(program: bytes) -> object:
    return PickleMachine(program, "x.pt").run()


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_plain_values_come_back_as_they_went_in(protocol: int) -> None:
    value = {
        "text": "é",
        "again": "text",
        "numbers": [0, 255, 256, -1, 2**31, -(2**40), 1.5],
        "flags": (True, False, None),
        "nested": {"": (), "one": (1,), "two": (1, 2), "three": (1, 2, 3), "four": (1, 2, 3, 4)},
        7: [],
    }

    assert run(Emitter(protocol).program(value)) == value


def test_an_ordered_mapping_is_a_mapping_and_its_state_is_dropped() -> None:
    value = Ordered({"a": 1}, {"_metadata": Ordered({"": {"version": 2}})})

    assert run(Emitter().program(value)) == {"a": 1}


def test_the_short_forms_of_lists_mappings_and_memory_are_read() -> None:
    assert run(b"]K\x01a.") == [1]
    assert run(b"}X\x01\x00\x00\x00aK\x01s.") == {"a": 1}
    assert run(b"(K\x01q\x00h\x00t.") == (1, 1)
    assert run(b"\x80\x04K\x07\x94h\x00\x86.") == (7, 7)


def message(program: bytes) -> str:
    with pytest.raises(CheckpointError) as caught:
        run(program)
    return str(caught.value)


FAULTS = {
    "ends where 1 more bytes should be": b"N",
    "takes a value from an empty stack": b"\x85.",
    "looks for a mark that was not set": b"t.",
    "ends with more or less than one value": b"NN.",
    "recalls value 3, which was never stored": b"h\x03.",
    "has a text of 2,147,483,647 bytes": b"X\xff\xff\xff\x7f",
    "has text that is not UTF-8": b"X\x01\x00\x00\x00\xff.",
    "is of protocol 6, newer than 5": b"\x80\x06N.",
    "has a frame of 999 bytes, more than are left": b"\x95" + struct.pack("<Q", 999) + b"N.",
    "has an integer of 200 bytes": b"\x8a\xc8" + bytes(200) + b".",
    "appends to something that is not a list": b"NNa.",
    "sets items of something that is not a mapping": b"](NNu.",
    "has a mapping whose key is neither text nor a number": b"}()Nu.",
    "sets the key `1` twice": b"}(K\x01NK\x01Nu.",
    "sets the state of something that is not a mapping": b"]}b.",
    "has a name that is not text": b"NN\x93.",
    "has a line without an end": b"ccollections",
    "has a number `1x` that is not one": b"I1x\n.",
    "uses the opcode `NEWOBJ`": b"NN\x81.",
    "uses the opcode `EXT1`": b"\x82\x01.",
    "uses the opcode `OBJ`": b"(No.",
    "uses the opcode `PERSID`": b"Pabc\n.",
    "uses the opcode `0xff`": b"\xff.",
    "calls something that is not a name": b"N)R.",
    "refers to something that is not a storage of five fields": b"NQ.",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_program_is_refused_with_the_place(fault: str) -> None:
    assert fault in message(FAULTS[fault])


def test_a_mark_protects_what_is_below_it() -> None:
    assert "empty stack" in message(b"K\x01(\x85t.")


def test_a_program_is_stopped_after_too_many_opcodes() -> None:
    assert f"more than {MOST_OPCODES:,} opcodes" in message(b"N" * (MOST_OPCODES + 1))


def test_a_name_used_by_an_old_opcode_is_refused_by_name() -> None:
    assert "`os.system`" in message(b"(ios\nsystem\n.")


def test_an_allowed_name_alone_is_only_a_record() -> None:
    value = run(Emitter(4).program(Name("collections", "OrderedDict")))

    assert type(value).__name__ == "Name"


@pytest.mark.parametrize(
    "call",
    [
        Call(Name("collections", "OrderedDict"), ([],)),
        Call(Name("torch", "FloatStorage"), (8,)),
        Call(Name("torch._utils", "_rebuild_parameter"), (1, 2, 3)),
        Call(Name("torch._utils", "_rebuild_tensor_v2"), (1, 2)),
        Call(Name("torch._utils", "_rebuild_tensor_v2"), (1, 2, 3, 4, 5, 6)),
    ],
)
def test_allowed_names_are_called_in_their_one_way_only(call: Call) -> None:
    with pytest.raises(CheckpointError):
        run(Emitter().program(call))


def test_deep_nesting_does_not_exhaust_the_stack() -> None:
    program = b")" + b"\x85" * 100_000 + b"."
    key = b"}(" + b")" + b"\x85" * 100_000 + b"Nu."

    assert isinstance(run(program), tuple)
    assert "key is neither text nor a number" in message(key)


def test_a_mapping_may_hold_itself() -> None:
    value = run(b"}q\x00X\x01\x00\x00\x00ah\x00s.")

    assert isinstance(value, dict)
    assert value["a"] is value


def test_raw_opcodes_pass_through_the_emitter() -> None:
    assert run(Emitter().program(Raw(b"K\x05"))) == 5
