import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from samgraph.checkpoint import Checkpoint, as_float32, from_mapping, read, with_meta_names
from samgraph.errors import CheckpointError
from tests.checkpoint import making
from tests.checkpoint.making import GOOD


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors", "a.png", "a"])
@pytest.mark.parametrize("make", [making.torch_file, making.safetensors_bytes])
def test_the_content_decides_the_format(
    tmp_path: Path, name: str, make: Callable[[dict[str, making.Array]], bytes]
) -> None:
    (tmp_path / name).write_bytes(make(GOOD))

    assert read(tmp_path / name).shapes == {"weight": (2, 3), "bias": (4,)}


def refusal(path: Path | str) -> str:
    with pytest.raises(CheckpointError) as caught:
        read(path)
    return str(caught.value)


BEGINNINGS = {
    "a PNG image": b"\x89PNG\r\n\x1a\n" + bytes(50),
    "a JPEG image": b"\xff\xd8\xff\xe0" + bytes(50),
    "a web page": b"<!DOCTYPE html><title>404</title>",
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\n",
    "a gzip file": b"\x1f\x8b\x08" + bytes(50),
    "torch before 1.6": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + bytes(50),
    "a bare pickle": b"\x80\x04}." + bytes(20),
    "neither a `.safetensors` nor a `.pt`": b"hello, this is a text",
    "is empty": b"",
    "too short": b"short",
}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_files_of_other_kinds_are_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.pt").write_bytes(BEGINNINGS[kind])

    message = refusal(tmp_path / "a.pt")

    assert kind in message
    assert "`a.pt`" in message


def test_what_is_not_a_file_is_named(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert "no checkpoint in it" in refusal(tmp_path)
    assert "a pipe" in refusal(pipe)
    assert "a device" in refusal("/dev/zero")
    assert f"there is no file `{tmp_path}/none.pt`" in refusal(tmp_path / "none.pt")
    assert "cannot be opened" in refusal("a\0b")
    assert "cannot be opened" in refusal("x" * 5000)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"")
    path.chmod(0)

    assert "may not be read" in refusal(path)


def test_a_refusal_by_the_system_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.pt").write_bytes(b"")
    monkeypatch.setattr("samgraph.checkpoint.source_file.os.open", deny)

    assert refusal(tmp_path / "a.pt").startswith("`a.pt` may not be read")


def test_mappings_of_arrays_are_taken_without_copying() -> None:
    checkpoint = from_mapping({"model": GOOD})

    assert checkpoint.tensors["weight"] is GOOD["weight"]
    assert checkpoint.source == "the mapping"


class Tensor:
    """A stand-in for a tensor of another library."""

    def __init__(self, values: making.Array, dtype: str) -> None:
        self.values, self.dtype = values, dtype

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return self

    def float(self) -> "Tensor":
        return Tensor(self.values.astype(np.float32), "torch.float32")

    def numpy(self) -> making.Array:
        if self.dtype == "torch.bfloat16":
            raise TypeError("unsupported")
        return self.values


def test_mappings_of_tensors_are_turned_into_arrays() -> None:
    half = np.array([1, 2.5], ml_dtypes.bfloat16)
    mapping = {
        "a": Tensor(GOOD["bias"], "torch.float32"),
        "b": Tensor(half, "torch.bfloat16"),
    }

    tensors = from_mapping(mapping).tensors

    assert tensors["a"] is GOOD["bias"]
    assert tensors["b"].dtype == ml_dtypes.bfloat16
    assert tensors["b"].tobytes() == half.tobytes()


@pytest.mark.parametrize(
    ("mapping", "fault"),
    [
        ({}, "holds no weights"),
        ({"x": 3}, "`x` of the mapping is not an array"),
        ({"x": np.array(["a"])}, "is not made of numbers"),
        ({"x": np.array([1j])}, "is not made of numbers"),
        ({3: np.zeros(1)}, "whose name is not text"),
        ({"a\0": np.zeros(1)}, "cannot be printed"),
        ({"x": Tensor(GOOD["bias"], "torch.complex")}, None),
        ([1, 2], "is not a mapping"),
    ],
)
def test_mappings_of_anything_else_are_refused(mapping: object, fault: str | None) -> None:
    if fault is None:
        from_mapping(mapping)  # type: ignore[arg-type]
        return
    with pytest.raises(CheckpointError) as caught:
        from_mapping(mapping)  # type: ignore[arg-type]
    assert fault in str(caught.value)


def test_float32_is_shared_and_the_rest_is_converted() -> None:
    tensors: dict[str, making.Array] = {
        "kept": np.ones((2, 2), np.float32),
        "half": np.array([1.5], np.float16),
        "brain": np.array([1.5], ml_dtypes.bfloat16),
        "whole": np.array(7, np.int64),
        "flag": np.array([True]),
        "other": np.array([2.0], ">f4"),
    }

    converted = as_float32(Checkpoint(tensors)).tensors

    assert converted["kept"] is tensors["kept"]
    assert all(array.dtype == np.float32 for array in converted.values())
    assert converted["whole"].shape == ()
    assert [float(a.reshape(-1)[0]) for a in converted.values()] == [1, 1.5, 1.5, 7, 1, 2]


def test_weights_that_are_not_finite_are_named() -> None:
    tensors: dict[str, making.Array] = {f"x{i}": np.array([np.nan], np.float32) for i in range(7)}
    tensors |= {"fine": np.zeros(3, np.float32), "huge": np.array([1e300])}

    with pytest.raises(CheckpointError) as caught:
        as_float32(Checkpoint(tensors, source="a.pt"))

    assert str(caught.value) == (
        "`a.pt` has weights that are not finite numbers\n"
        "  got:      `x0`, `x1`, `x2`, `x3`, `x4` and 3 more\n"
        "  hint: training may have diverged: use an earlier checkpoint"
    )


def test_a_single_infinity_in_a_large_tensor_is_found() -> None:
    large = np.zeros((3, 1 << 20), np.float32)
    large[2, -1] = np.inf

    with pytest.raises(CheckpointError, match="`large`"):
        as_float32(Checkpoint({"large": large}))


def test_other_names_are_left_alone() -> None:
    checkpoint = Checkpoint(dict(GOOD))

    assert with_meta_names(checkpoint) is checkpoint


@pytest.mark.parametrize("make", [making.torch_file, making.safetensors_bytes])
def test_a_load_needs_hardly_more_memory_than_the_file(
    tmp_path: Path, make: Callable[[dict[str, making.Array]], bytes]
) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(make({f"x{i}": np.ones((512, 1024), np.float32) for i in range(8)}))

    tracemalloc.start()
    try:
        checkpoint = as_float32(read(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(checkpoint.tensors) == 8
    assert peak < 1.2 * path.stat().st_size


@pytest.mark.parity
def test_a_state_dict_of_torch_is_taken_as_it_is() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2).to(torch.bfloat16)

    tensors = from_mapping(model.state_dict()).tensors

    for name, tensor in model.state_dict().items():
        assert tensors[name].tobytes() == tensor.view(torch.uint8).numpy().tobytes()
