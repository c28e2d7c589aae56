import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from samgraph.checkpoint import read, save, source_file
from samgraph.errors import CheckpointError, OutputError
from tests.checkpoint import making
from tests.checkpoint.making import GOOD, entry, safetensors_bytes, with_header


def _refused(*_: object) -> int:
    raise OSError("not here")


def load(folder: Path, raw: bytes) -> dict[str, making.Array]:
    path = folder / "model.safetensors"
    path.write_bytes(raw)
    return read(path).tensors


@pytest.mark.parametrize("name", making.CODES)
def test_every_type_keeps_its_bits(tmp_path: Path, name: str) -> None:
    dtype = making.BFLOAT16 if name == "bfloat16" else np.dtype(name)
    high = 2 if dtype.kind == "b" else 256
    raw = np.random.default_rng(0).integers(0, high, 64 * dtype.itemsize, np.uint8)
    tensors = {"x": raw.view(dtype).reshape(4, 16), "y": raw.view(dtype)[:1].reshape(())}

    found = load(tmp_path, safetensors_bytes(tensors))

    for key, array in tensors.items():
        assert found[key].dtype == array.dtype
        assert found[key].shape == array.shape
        assert found[key].tobytes() == array.tobytes()


@pytest.mark.parametrize("most", [1, 3, 512])
@pytest.mark.parametrize("can", ["all", "a part", "nothing", "no such call"])
def test_tensors_are_read_in_any_order_and_aligned_however_much_a_call_reads(
    tmp_path: Path, can: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors: dict[str, making.Array] = {
        "x": np.arange(3, dtype=np.uint8),
        "empty": np.zeros((0, 4), np.float32),
        "y": np.arange(5, dtype=np.float32),
        "z": np.arange(7, dtype=np.float64),
    }
    raw = safetensors_bytes(tensors)
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    text = json.dumps(dict(reversed(header.items()))).encode()
    monkeypatch.setattr(source_file, "MOST_AT_ONCE", most)
    if can == "a part":
        monkeypatch.setattr(os, "preadv", lambda *_: 1)
    elif can == "nothing":
        monkeypatch.setattr(os, "preadv", _refused)
    elif can == "no such call":
        monkeypatch.delattr(os, "preadv")

    found = load(tmp_path, len(text).to_bytes(8, "little") + text + raw[8 + length :])

    assert list(found) == list(reversed(tensors))
    for key, array in tensors.items():
        assert found[key].flags.aligned
        assert found[key].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("code", "raw", "values"),
    [
        ("F32", "0000803f 000000c0 01000000", [1.0, -2.0, 2.0**-149]),
        ("F16", "003c 00c0 0100", [1.0, -2.0, 2.0**-24]),
        ("BF16", "803f 00c0 0100", [1.0, -2.0, 2.0**-133]),
    ],
)
def test_hand_written_bytes_give_the_values_they_mean(
    tmp_path: Path, code: str, raw: str, values: list[float]
) -> None:
    body = bytes.fromhex(raw)
    header = json.dumps({"x": entry(code, [3], [0, len(body)])}).encode()

    found = load(tmp_path, with_header(header, body))

    assert found["x"].astype(np.float64).tolist() == values


def test_metadata_and_order_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_bytes(GOOD, {"format": "pt", "note": "é"}))

    checkpoint = read(path)

    assert checkpoint.metadata == {"format": "pt", "note": "é"}
    assert list(checkpoint.tensors) == list(GOOD)
    assert checkpoint.source == str(path)


def test_tensors_may_lie_in_another_order_than_the_header(tmp_path: Path) -> None:
    header = {"b": entry("U8", [2], [1, 3]), "a": entry("U8", [1], [0, 1])}

    found = load(tmp_path, with_header(json.dumps(header).encode(), b"\x01\x02\x03"))

    assert found["a"].tolist() == [1]
    assert found["b"].tolist() == [2, 3]


def test_files_of_the_library_are_read(tmp_path: Path) -> None:
    save_file(GOOD, tmp_path / "a.safetensors", {"format": "np"})

    checkpoint = read(tmp_path / "a.safetensors")

    assert checkpoint.metadata == {"format": "np"}
    for name, array in GOOD.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], array)


F32 = "F32"
X = entry(F32, [2], [0, 8])
FAULTS: dict[str, tuple[object, int]] = {
    "is not described by a dtype, a shape and offsets": ({"x": {"dtype": F32}}, 8),
    "an unsupported dtype\n  got:      `F8_E4M3`": ({"x": entry("F8_E4M3", [2], [0, 2])}, 2),
    "the offsets of `x` are not two numbers": ({"x": entry(F32, [2], [0, 8.0])}, 8),
    "do not fit its shape\n  got:      bytes 0 to 8": ({"x": entry(F32, [3], [0, 8])}, 8),
    "the shape of `x` is impossible\n  got:      -2": ({"x": entry(F32, [-2], [0, 8])}, 8),
    "`y` overlaps another tensor": ({"x": X, "y": entry(F32, [2], [4, 12])}, 12),
    "`y` comes after unused bytes": ({"x": X, "y": entry(F32, [2], [9, 17])}, 17),
    "it is longer than its tensors": ({"x": X}, 9),
    "it is cut short": ({"x": X}, 7),
    "its metadata is not a mapping": ({"x": X, "__metadata__": {"a": 1}}, 8),
    "has a tensor name that looks like a path": ({"../x": X}, 8),
    "has a tensor name that is empty": ({"": X}, 8),
    "holds no weights": ({}, 0),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_header_that_lies_is_refused(tmp_path: Path, fault: str) -> None:
    header, length = FAULTS[fault]

    with pytest.raises(CheckpointError) as caught:
        load(tmp_path, with_header(json.dumps(header).encode(), bytes(length)))

    assert fault in str(caught.value)
    assert "`model.safetensors`" in str(caught.value)


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    one = json.dumps(X)

    with pytest.raises(CheckpointError, match="`x` is a duplicate key"):
        load(tmp_path, with_header(f'{{"x":{one},"x":{one}}}'.encode(), bytes(8)))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_what_is_saved_is_read_back_rounded_once(tmp_path: Path, precision: str) -> None:
    values = np.random.default_rng(0).normal(size=(7, 9)).astype(np.float32)
    tensors = {"transposed": values.T, "count": np.array(3, np.int64), "flags": values > 0}
    dtype = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}[precision]
    path = tmp_path / "a.safetensors"

    save(path, tensors, precision, {"made": "here"})  # type: ignore[arg-type]

    checkpoint = read(path)
    assert checkpoint.metadata == {"made": "here"}
    assert checkpoint.tensors["transposed"].dtype == dtype
    assert checkpoint.tensors["transposed"].tobytes() == values.T.astype(dtype).tobytes()
    assert checkpoint.tensors["count"].dtype == np.int64
    assert checkpoint.tensors["count"].shape == ()
    np.testing.assert_array_equal(checkpoint.tensors["flags"], values > 0)


def test_the_library_reads_what_is_saved(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors", GOOD)

    found = load_file(tmp_path / "a.safetensors")

    assert sorted(found) == sorted(GOOD)
    for name, array in GOOD.items():
        np.testing.assert_array_equal(found[name], array)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save(path, GOOD)
    before = path.read_bytes()

    with pytest.raises(CheckpointError, match="`big` has values that float16 cannot hold"):
        save(path, {**GOOD, "big": np.array([1e6], np.float32)}, "fp16")

    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["a.safetensors"]


def test_saving_where_there_is_no_folder_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        save(tmp_path / "missing" / "a.safetensors", GOOD)


def test_unknown_precisions_and_types_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no precision `int4`"):
        save(tmp_path / "a", GOOD, "int4")  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="`x` is of a type that cannot be saved"):
        save(tmp_path / "a", {"x": np.zeros(2, np.complex64)})
    with pytest.raises(CheckpointError, match="reserved"):
        save(tmp_path / "a", {"__metadata__": np.zeros(2, np.float32)})


@pytest.mark.parity
def test_values_are_those_torch_reads_bit_for_bit(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_torch
    from safetensors.torch import save_file as save_torch

    generator = torch.Generator().manual_seed(0)
    tensors = {
        str(dtype): torch.randn(33, 7, generator=generator).to(dtype)
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    }
    path = tmp_path / "a.safetensors"
    save_torch(tensors, path)

    found = read(path).tensors

    for name, tensor in load_torch(path).items():
        assert found[name].tobytes() == tensor.view(torch.uint8).numpy().tobytes()
