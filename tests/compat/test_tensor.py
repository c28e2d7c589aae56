"""Arrays with the methods of tensors: as torch has them, with torch, and without it."""

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from samgraph.compat.host import HostDevice, to_host
from samgraph.compat.tensor import Tensor, tensor
from samgraph.errors import OptionError
from tests import tolerances

VALUES = np.random.default_rng(0).standard_normal((2, 1, 3, 4)).astype(np.float32)


@pytest.fixture
def x() -> Tensor:
    return tensor(VALUES.copy())


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if torch were not installed."""
    monkeypatch.setitem(sys.modules, "torch", None)


def test_what_is_done_to_masks_gives_plain_arrays(x: Tensor) -> None:
    mask = (x[0] > 0.0).cpu().numpy()

    assert type(mask) is np.ndarray
    assert mask.dtype == np.bool_
    assert np.shares_memory(x.numpy(), x)
    assert np.array_equal(mask, VALUES[0] > 0)


def test_indexing_comparing_and_computing_keep_the_class(x: Tensor) -> None:
    one = x[0, 0, 0, 0]
    kept = [x[0], x[x > 0], x > 0, x * 2, 2 * x, -x, x[None], one, x.sum(), x.T, ~(x > 0)]

    assert {type(value) for value in kept} == {Tensor}
    assert {type(value) for value in x.flatten()} == {Tensor}
    assert one.item() == VALUES[0, 0, 0, 0]
    assert f"{one:.3f}" == f"{VALUES[0, 0, 0, 0]:.3f}"
    assert str(x[0, 0]) == str(VALUES[0, 0])


def test_numpy_s_functions_take_and_give_them(x: Tensor) -> None:
    assert type(np.concatenate([x, x])) is Tensor
    assert np.squeeze(x, axis=1).shape == (2, 3, 4)
    assert np.repeat(x, 2, axis=0).shape == (4, 1, 3, 4)
    assert np.transpose(x, (3, 0, 1, 2)).shape == (4, 2, 1, 3)
    assert np.allclose(np.sort(x, axis=-1), np.sort(VALUES, axis=-1))
    assert np.std(x) == np.std(VALUES)
    assert np.array_equal(pickle.loads(pickle.dumps(x)), VALUES)
    assert x.size == 24


def test_without_torch_devices_are_texts(no_torch: None, x: Tensor) -> None:
    assert x.device == "cpu"
    assert x.device.type == "cpu"
    assert HostDevice("cuda:1").index == 1
    assert x.to("cpu") is x
    assert x.to(x.device).to(np.float64).dtype == np.float64
    with pytest.raises(OptionError, match="results are in main memory"):
        x.cuda()
    with pytest.raises(AttributeError, match="has no `softmax`"):
        x.softmax(-1)


def test_numbers_are_found_in_dicts(x: Tensor) -> None:
    names = {0: "cup", 1: "dog"}

    assert [names[n] for n in tensor([1.0, 0.0]).astype(int)] == ["dog", "cup"]
    assert {x: "a"}[x] == "a"
    assert len({x, x.clone()}) == 2


# Each is called on a tensor of torch's and on one of ours.
CALLS: dict[str, Callable[[Any], Any]] = {
    "size": lambda t: (tuple(t.size()), t.size(0), t.dim(), t.numel()),
    "squeeze": lambda t: t.squeeze(1).squeeze(0).squeeze(),
    "unsqueeze": lambda t: t.unsqueeze(-1),
    "permute": lambda t: t.permute(0, 2, 3, 1),
    "transpose": lambda t: t.transpose(2, 3),
    "view": lambda t: t.view(2, -1),
    "flatten": lambda t: t.flatten(1),
    "flatten some": lambda t: t.flatten(0, 1),
    "repeat": lambda t: t.repeat(1, 2, 1, 1),
    "expand": lambda t: t.expand(2, 5, -1, -1),
    "max": lambda t: t.max(),
    "max along": lambda t: t.max(dim=-1),
    "min along": lambda t: t.min(2, keepdim=True),
    "argmax": lambda t: t.argmax(dim=1),
    "sum": lambda t: t.sum(dim=(1, 2)),
    "mean": lambda t: t.mean(-1, keepdim=True),
    "std": lambda t: t.std(),
    "any": lambda t: (t > 0).any(dim=0),
    "all": lambda t: (t > -9).all(),
    "sort": lambda t: t.sort(descending=True),
    "argsort": lambda t: t.argsort(dim=2),
    "topk": lambda t: t.topk(2),
    "clamp": lambda t: t.clamp(max=0.1),
    "clamp both": lambda t: t.clamp(-0.1, 0.1),
    "sigmoid": lambda t: t.sigmoid(),
    "masked_fill": lambda t: t.masked_fill(t > 0, 7.0),
    "nonzero": lambda t: (t > 0).nonzero(),
    "nonzero as numpy's": lambda t: (t > 0).nonzero(as_tuple=True),
    "data": lambda t: t.data,
    "unbind": lambda t: t.unbind(2)[1],
    "casts": lambda t: t.double().float().half().float().int().long().bool().byte(),
    "detach": lambda t: t.detach().clone().contiguous().cpu(),
    "comparisons": lambda t: t.gt(0).logical_and(t.lt(1)).float(),
    "logical_not": lambda t: t.ge(0).logical_not(),
    "abs and so on": lambda t: t.abs().sqrt().exp().log().floor(),
    "amax": lambda t: t.amax(dim=(2, 3)),
    "cumsum": lambda t: t.cumsum(dim=3),
    "fields": lambda t: (t.requires_grad, t.is_cuda, t.is_floating_point(), t.device.type),
}


@pytest.mark.parametrize("name", CALLS)
def test_methods_are_those_of_torch(name: str, x: Tensor) -> None:
    torch = pytest.importorskip("torch")

    wanted, found = CALLS[name](torch.from_numpy(VALUES)), CALLS[name](x)

    assert_same(wanted, found)


def assert_same(wanted: Any, found: Any) -> None:
    if isinstance(wanted, tuple):
        assert len(wanted) == len(found)
        for one, other in zip(wanted, found, strict=True):
            assert_same(one, other)
    elif hasattr(wanted, "detach"):
        assert type(found) is Tensor
        assert found.shape == tuple(wanted.shape)
        assert str(found.dtype) == str(wanted.dtype).removeprefix("torch.")
        np.testing.assert_allclose(found, wanted.numpy(), rtol=tolerances.COMPAT_METHODS, atol=1e-7)
    else:
        assert found == wanted


def test_torch_takes_them(x: Tensor) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.full(VALUES.shape, 0.5)
    own = torch.from_numpy(VALUES)

    assert torch.equal(torch.from_numpy(x), own)
    assert torch.equal(torch.as_tensor(x), own)
    assert torch.equal(torch.tensor(x), own)
    for wanted, found in (
        (own + theirs, theirs + x),
        (own + theirs, x + theirs),
        (own > theirs, x > theirs),
        (theirs > own, theirs > x),
        (own * theirs, x * theirs),
        (torch.sigmoid(own), torch.sigmoid(x)),
        (torch.stack([own, theirs]), torch.stack([x, theirs])),
        (torch.where(own > 0, own, theirs), torch.where(x > 0, x, theirs)),
        (torch.nn.functional.interpolate(own, (6, 8)), torch.nn.functional.interpolate(x, (6, 8))),
        (own.softmax(-1), x.softmax(-1)),
        (torch.logical_or(own > 0, theirs > 1), torch.logical_or(x > 0, theirs > 1)),
    ):
        assert isinstance(found, torch.Tensor)
        assert torch.equal(wanted, found)
    theirs += x
    theirs[0] = x[1]
    assert torch.equal(theirs[0], own[1])


def test_tensors_may_index_and_be_assigned(x: Tensor) -> None:
    torch = pytest.importorskip("torch")
    rows, columns = torch.arange(2), torch.zeros(2, dtype=torch.long)

    assert x[rows, columns].shape == (2, 3, 4)
    x[torch.from_numpy(VALUES > 0)] = torch.tensor(0.0)
    assert x.max() <= 0
    assert x.device == torch.device("cpu")
    assert x.to(torch.float16).dtype == np.float16
    assert x.to(torch.zeros(1, dtype=torch.float64)).dtype == np.float64
    assert x.to(torch.device("cpu")) is x


def test_inputs_come_from_any_tensor() -> None:
    torch = pytest.importorskip("torch")

    assert to_host(torch.ones(2, dtype=torch.bfloat16, requires_grad=True)).dtype == np.float32
    assert [type(value) for value in to_host([torch.ones(1), torch.ones(2)])] == [np.ndarray] * 2
    assert to_host([1, 2]) == [1, 2]
