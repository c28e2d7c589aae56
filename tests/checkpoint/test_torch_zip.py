from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from samgraph.checkpoint import read
from samgraph.checkpoint.torch_zip import read as read_torch
from samgraph.errors import CheckpointError
from tests.checkpoint import making
from tests.checkpoint.making import GOOD, Call, Name, Ordered, Record


def load(folder: Path, raw: bytes) -> dict[str, making.Array]:
    path = folder / "model.pt"
    path.write_bytes(raw)
    return read(path).tensors


def assert_same(found: dict[str, making.Array], wanted: dict[str, making.Array]) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("wrapper", ["model", "state_dict", None])
def test_every_protocol_that_can_hold_tensors_is_read(
    tmp_path: Path, protocol: int, wrapper: str | None
) -> None:
    raw = making.torch_file(GOOD, protocol=protocol, wrapper=wrapper)

    assert_same(load(tmp_path, raw), GOOD)


@pytest.mark.parametrize("name", making.STORAGES)
def test_every_storage_type_keeps_its_bits(tmp_path: Path, name: str) -> None:
    dtype = making.BFLOAT16 if name == "bfloat16" else np.dtype(name)
    raw = np.random.default_rng(0).integers(0, 2, 64 * dtype.itemsize, np.uint8)
    if dtype.kind != "b":
        raw = np.random.default_rng(0).integers(0, 256, 64 * dtype.itemsize, np.uint8)
    tensors = {"x": raw.view(dtype).reshape(8, 8)}

    assert_same(load(tmp_path, making.torch_file(tensors)), tensors)


def test_a_big_endian_file_is_turned_round(tmp_path: Path) -> None:
    values = np.array([1.0, 2.5, -3.0], np.float32)
    half = np.array([1.0, 2.5, -3.0], ml_dtypes.bfloat16)
    described, storages = making.state({"a": values, "b": half})
    storages = {"0": values.astype(">f4").tobytes(), "1": half.view("u2").byteswap().tobytes()}
    program = making.Emitter().program(described)
    records = making.torch_records(program, storages)
    records[1] = Record("archive/byteorder", b"big")

    assert_same(load(tmp_path, making.zip_bytes(records)), {"a": values, "b": half})


def test_windows_on_one_storage_are_views_of_it(tmp_path: Path) -> None:
    held = making.storage("Float", "0", 12)
    value = {
        "whole": making.tensor(held, (3, 4)),
        "tail": making.tensor(held, (4,), offset=8),
        "transposed": making.tensor(held, (4, 3), (1, 4)),
        "column": making.tensor(held, (3,), (4,), offset=1),
        "none": making.tensor(held, (0, 5)),
        "single": making.tensor(held, (), offset=11),
    }
    numbers = np.arange(12, dtype=np.float32)

    tensors = load(tmp_path, making.torch_bytes(value, {"0": numbers.tobytes()}))

    grid = numbers.reshape(3, 4)
    np.testing.assert_array_equal(tensors["whole"], grid)
    np.testing.assert_array_equal(tensors["tail"], numbers[8:])
    np.testing.assert_array_equal(tensors["transposed"], grid.T)
    np.testing.assert_array_equal(tensors["column"], grid[:, 1])
    assert tensors["none"].shape == (0, 5)
    assert tensors["single"].shape == ()
    assert tensors["single"] == 11
    assert np.shares_memory(tensors["whole"], tensors["tail"])


def test_parameters_are_read_as_their_tensors(tmp_path: Path) -> None:
    described, storages = making.state(GOOD)
    rebuild = Name("torch._utils", "_rebuild_parameter")
    value = {name: Call(rebuild, (item, True, Ordered({}))) for name, item in described.items()}

    assert_same(load(tmp_path, making.torch_bytes(value, storages)), GOOD)


def test_what_stands_beside_the_model_is_left_unread(tmp_path: Path) -> None:
    described, storages = making.state(GOOD)
    value = {"epoch": 3, "loss": 0.5, "big": 2**40, "lr": [0.1, None], "model": described}

    assert_same(load(tmp_path, making.torch_bytes(value, storages)), GOOD)


@pytest.mark.parametrize("large", [False, True])
def test_both_ends_of_a_zip_file_are_read(tmp_path: Path, large: bool) -> None:
    described, storages = making.state(GOOD)
    records = making.torch_records(making.Emitter().program(described), storages)

    assert_same(load(tmp_path, making.zip_bytes(records, large=large)), GOOD)


def refusal(folder: Path, raw: bytes) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(folder, raw)
    return str(caught.value)


def test_a_forbidden_name_is_refused_by_name(tmp_path: Path) -> None:
    value = {"model": Call(Name("os", "system"), ("true",))}

    assert refusal(tmp_path, making.torch_bytes(value, {})) == (
        "`model.pt` asks for `os.system`, which is not a weight\n"
        "  hint: only weights are read: save them alone with "
        "`torch.save(model.state_dict(), ...)`, or as `.safetensors`"
    )


def test_a_stride_beyond_the_storage_is_refused_before_any_view(tmp_path: Path) -> None:
    value = {"x": making.tensor(making.storage("Float", "0", 4), (2, 2), (3, 1))}

    assert refusal(tmp_path, making.torch_bytes(value, {"0": bytes(16)})) == (
        "`model.pt` has a tensor that reaches outside its storage\n"
        "  got:      shape (2, 2), strides (3, 1), offset 0\n"
        "  expected: within 4 values"
    )


def test_a_storage_shorter_than_it_claims_is_refused(tmp_path: Path) -> None:
    value = {"x": making.tensor(making.storage("Float", "0", 100), (100,))}

    assert refusal(tmp_path, making.torch_bytes(value, {"0": bytes(16)})) == (
        "`model.pt`: storage `0` is not of the size it should be\n"
        "  got:      16 bytes\n"
        "  expected: 400 (100 values of float32)"
    )


def test_one_storage_cannot_be_of_two_types(tmp_path: Path) -> None:
    value = {
        "a": making.tensor(making.storage("Float", "0", 4), (4,)),
        "b": making.tensor(making.storage("Int", "0", 4), (4,)),
    }

    assert "described in two ways" in refusal(tmp_path, making.torch_bytes(value, {"0": bytes(16)}))


def test_many_windows_cannot_unfold_to_more_than_the_file(tmp_path: Path) -> None:
    held = making.storage("Float", "0", 4096)
    value = {f"x{index}": making.tensor(held, (4096,)) for index in range(50)}

    message = refusal(tmp_path, making.torch_bytes(value, {"0": bytes(4 * 4096)}))

    assert "unfolds to far more than its size" in message


def test_a_damaged_record_is_told_by_its_checksum(tmp_path: Path) -> None:
    raw = making.torch_file(GOOD)
    position = raw.index(GOOD["bias"].tobytes())
    damaged = raw[:position] + b"\xff" + raw[position + 1 :]

    message = refusal(tmp_path, damaged)

    assert "the checksum of `data/1` is wrong" in message
    assert "fetch or copy the file again" in message


def test_a_torchscript_archive_is_named(tmp_path: Path) -> None:
    records = [Record("ts/data.pkl", b"N."), Record("ts/code/x.py", b"\x03\x00", method=8)]
    records.append(Record("ts/constants.pkl", b"N."))

    message = refusal(tmp_path, making.zip_bytes(records))

    assert message.startswith("`model.pt` is a TorchScript archive")


def test_a_value_that_is_not_a_tensor_is_named(tmp_path: Path) -> None:
    described, storages = making.state(GOOD)
    value = {**described, "step": 7}

    assert "`step` is not a tensor\n  got:      int" in refusal(
        tmp_path, making.torch_bytes(value, storages)
    )


@pytest.mark.parity
@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_files_written_by_torch_are_read_bit_for_bit(tmp_path: Path, protocol: int) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    tensors = {
        str(dtype): torch.randint(0, 2, (3, 5), generator=generator).to(dtype)
        for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    }
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        tensors[str(dtype)] = torch.randn(3, 5, generator=generator).to(dtype)
    tensors["transposed"] = tensors["torch.float32"].T
    tensors["shared"] = tensors["torch.float32"][1:]
    tensors["parameter"] = torch.nn.Parameter(torch.randn(2, generator=generator))
    linear = torch.nn.Linear(3, 2)
    path = tmp_path / "model.pt"
    wanted = {**linear.state_dict(), **tensors}
    torch.save({"model": wanted}, path, pickle_protocol=protocol)

    found = read(path).tensors

    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        plain = tensor.detach().contiguous()
        assert found[name].shape == tuple(plain.shape)
        assert found[name].tobytes() == plain.view(torch.uint8).numpy().tobytes()


@pytest.mark.parity
def test_state_dicts_with_metadata_from_torch_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(model.state_dict(), tmp_path / "model.pt")

    assert read(tmp_path / "model.pt").shapes == {
        name: tuple(tensor.shape) for name, tensor in model.state_dict().items()
    }


def test_the_reader_is_reached_by_its_own_name_too(tmp_path: Path) -> None:
    from samgraph.checkpoint.source_file import SourceFile

    path = tmp_path / "model.pt"
    path.write_bytes(making.torch_file(GOOD))

    with SourceFile(path) as file:
        assert_same(read_torch(file), GOOD)
