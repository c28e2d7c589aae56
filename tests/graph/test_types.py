"""Tensor types: text in and out, dtypes, numpy's names."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samgraph.errors import GraphError
from samgraph.graph import TensorType, parse_type, symbol
from samgraph.graph.types import DTYPES, DType, dtype_of, numpy_dtype, type_of
from tests.graph.test_dims import dims

SHAPES = st.lists(dims().filter(lambda dim: not isinstance(dim, int) or dim >= 0), max_size=5)


@given(SHAPES, st.sampled_from(DTYPES))
def test_a_type_reads_back_as_it_prints(shape: list[int], dtype: DType) -> None:
    type = TensorType(tuple(shape), dtype)

    assert parse_type(str(type)) == type


def test_a_type_prints_short() -> None:
    M = symbol("M")

    assert str(TensorType((1, M, 256))) == "f32[1,M,256]"
    assert str(TensorType((), "bool")) == "bool[]"
    assert TensorType((1, 4 * M + 1)).symbols == {"M"}


@pytest.mark.parametrize(
    "text",
    ["", "f32", "f32[", "f32]", "f33[2]", "f32[-1]", "f32[a b]", "[2]", "f32[2,,3]", "f32[,]",
     "f32[2,]", "f32[2.5]", "f32[M**2]", "f32[2]x", "F32[2]", "f32[(A+B)//C]"],
)  # fmt: skip
def test_text_that_is_no_type_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(GraphError):
        parse_type(text)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_knows_every_dtype(dtype: DType) -> None:
    array = np.zeros((2, 3), numpy_dtype(dtype))

    assert dtype_of(array) == dtype
    assert type_of(array) == TensorType((2, 3), dtype)


def test_bf16_is_that_of_ml_dtypes() -> None:
    assert numpy_dtype("bf16") == ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", ["complex64", "object", "uint16", ">f4", "<U3", "datetime64[s]"])
def test_other_dtypes_are_refused_by_name(dtype: str) -> None:
    with pytest.raises(GraphError, match="are not supported"):
        dtype_of(np.zeros(2, dtype))
