"""Ops through their kernels, held to the numpy references."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from samgraph.graph.registry import find_op
from samgraph.graph.types import Array

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed: pip install triton", allow_module_level=True)
import samgraph.engines.torch.passes  # noqa: E402, F401  # the engine's ops
from samgraph.engines.torch.tables import Table as Table  # noqa: E402


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def run(op: str, *arrays: Array, half: tuple[int, ...] = (), **attributes: Any) -> Array:
    """The op by its kernel; inputs numbered in `half` are given in float16."""
    from samgraph.engines.torch.kernels import kernel_rules

    rules = kernel_rules()
    assert rules is not None
    tensors = [torch.from_numpy(np.array(array)) for array in arrays]
    for index in half:
        tensors[index] = tensors[index].half()
    found: Array = rules[op](*tensors, **attributes).float().numpy()
    return found


def difference(op: str, *arrays: Array, half: tuple[int, ...] = (), **attributes: Any) -> float:
    """How far the kernel is from the reference, relative to the size of that: in all, not worst."""
    found = run(op, *arrays, half=half, **attributes)
    rounded = [
        x.astype(np.float16).astype(np.float32) if i in half else x for i, x in enumerate(arrays)
    ]
    given = {key: value for key, value in attributes.items() if key != "dtype"}
    expected = find_op(op).reference(*rounded, **given)
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
