"""Arrays that also have the methods of tensors, for code that was written for torch.

    masks = (mask_logits[0] > 0.0).cpu().numpy()

A `Tensor` is a numpy array: numpy's functions take it, indexing and arithmetic give another,
and nothing is copied. Methods that exist in both libraries are torch's (`size()`, `max(dim)`,
`repeat`, `view`), except where numpy's own keywords (`axis=`) are used. torch is not needed; where
it is imported, torch's functions and tensors take a `Tensor` and give torch's tensors.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from samgraph.compat.host import (
    BFLOAT16,
    Size,
    as_torch,
    device_named,
    imported_torch,
    is_torch,
    numpy_dtype,
    to_host,
)
from samgraph.errors import OptionError

if TYPE_CHECKING:
    _Array = Any
else:
    _Array = np.ndarray

_UNSET: Any = object()


class ValuesAndIndices(NamedTuple):
    """What `max`, `min`, `sort` and `topk` along a dimension return."""

    values: Any
    indices: Any


def tensor(values: Any) -> "Tensor":
    """An array as a `Tensor`, not copied."""
    array: Any = np.asarray(to_host(values))
    found: Tensor = array.view(Tensor)
    return found


def like(given: Any, found: Any) -> Any:
    """An array as what was given: one of torch's tensors on its device, or a `Tensor`."""
    return as_torch(found).to(given.device) if is_torch(given) else tensor(found)


def _cast(dtype: Any) -> Callable[..., Any]:
    def cast(self: "Tensor", *_: Any, **__: Any) -> Any:
        return self.astype(dtype, copy=False)

    return cast


def _itself(self: "Tensor", *_: Any, **__: Any) -> Any:
    return self


def _reduction(name: str) -> Callable[..., Any]:
    """A method of arrays that also takes `dim` and `keepdim`."""
    method = getattr(np.ndarray, name)

    def reduce(
        self: "Tensor",
        dim: Any = None,
        keepdim: bool = False,
        *,
        axis: Any = None,
        dtype: Any = None,
        **rest: Any,
    ) -> Any:
        if dtype is not None:
            rest["dtype"] = numpy_dtype(dtype)
        if keepdim:
            rest["keepdims"] = True
        if name in ("std", "var") and "ddof" not in rest:  # torch's default, not numpy's
            rest["ddof"] = int(rest.pop("unbiased", rest.pop("correction", 1)))
        axis = dim if axis is None else axis
        return _wrapped(method(self, axis=tuple(axis) if isinstance(axis, list) else axis, **rest))

    return reduce


def _extreme(name: str) -> Callable[..., Any]:
    """`max` or `min`: along a dimension, values and indices."""
    method, index = getattr(np.ndarray, name), getattr(np.ndarray, f"arg{name}")
    pairwise = {"max": np.maximum, "min": np.minimum}[name]

    def extreme(
        self: "Tensor", dim: Any = None, keepdim: bool = False, *, axis: Any = None, **rest: Any
    ) -> Any:
        if dim is None:
            return _wrapped(method(self, axis=axis, **rest))
        if not isinstance(dim, int | np.integer):
            return tensor(pairwise(self, to_host(dim)))
        found = method(self, axis=dim, keepdims=keepdim), index(self, axis=dim, keepdims=keepdim)
        return ValuesAndIndices(*map(_wrapped, found))

    return extreme


def _binary(function: Any) -> Callable[..., Any]:
    def apply(self: "Tensor", other: Any) -> Any:
        return _wrapped(function(self, to_host(other)))

    return apply


def _unary(function: Any) -> Callable[..., Any]:
    def apply(self: "Tensor") -> Any:
        return _wrapped(function(self))

    return apply


def _wrapped(found: Any) -> Any:
    return found if isinstance(found, tuple) or found is None else np.asarray(found).view(Tensor)


class Tensor(_Array):  # type: ignore[misc]  # numpy's signatures differ from torch's
    """A numpy array with the methods of a tensor in main memory; `dtype` is numpy's."""

    if TYPE_CHECKING:  # else floats would compare themselves, and give a bool

        def __gt__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...

    __array_priority__ = 900.0  # below that of torch's tensors, which then compute
    requires_grad, is_cuda, grad = False, False, None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array.view(Tensor)

    def __str__(self) -> str:
        return str(np.asarray(self))

    def __repr__(self) -> str:
        return repr(np.asarray(self)).replace("array(", "tensor(", 1)

    def __getitem__(self, key: Any) -> Any:
        return _wrapped(super().__getitem__(_key(key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_key(key), to_host(value))

    def __hash__(
        self,
    ) -> int:  # a number is found in a dict of numbers; else as torch's, by identity
        return hash(self.item()) if self.ndim == 0 else id(self)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        """The other methods of tensors, where torch is imported; they give torch's tensors."""
        torch = imported_torch()
        if torch is None or name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"a tensor of samgraph.compat has no `{name}`")
        return getattr(as_torch(self), name)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Numpy's functions see plain arrays; arrays they give have the methods again."""
        plain = {name: _plain(value) for name, value in kwargs.items()}
        return _again(func(*map(_plain, args), **plain))

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Torch's functions compute with torch's tensors, where those among the arguments are."""
        given = [*args, *(kwargs or {}).values()]
        device = next((value.device for value in given if is_torch(value)), None)
        named = {name: _for_torch(value, device) for name, value in (kwargs or {}).items()}
        return func(*(_for_torch(value, device) for value in args), **named)

    @property
    def device(self) -> Any:
        """Main memory."""
        return device_named("cpu")

    @property
    def data(self) -> Any:
        """Itself: there are no gradients."""
        return self

    @property
    def size(self) -> Size:
        """`size` is the number of elements, `size()` the shape, `size(0)` its first length."""
        size = Size(np.ndarray.size.__get__(self))
        size.shape = self.shape
        return size

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """With another dtype, or, as one of torch's tensors, on another device."""
        found: Any = self
        given = [*args, *(kwargs.get(name) for name in ("device", "dtype", "other"))]
        for value in given:
            if isinstance(value, np.ndarray) or is_torch(value):
                found = found.to(value.dtype).to(value.device)
            elif isinstance(value, np.dtype | type) or str(value).startswith("torch."):
                found = found.astype(numpy_dtype(value), copy=False)
            elif value is not None and not isinstance(value, bool):
                found = found if str(value) == "cpu" else _moved(found, value)
        return found

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """One of torch's tensors, on a GPU."""
        return self.to("cuda" if device is None else device)

    def numpy(self, *, force: bool = False) -> NDArray[Any]:
        """The plain array, not copied."""
        return np.asarray(self)

    def type(self, dtype: Any = None) -> Any:
        """With another dtype; without an argument, the name of its own."""
        return str(self.dtype) if dtype is None else self.astype(numpy_dtype(dtype))

    def clone(self, **_: Any) -> Any:
        """A copy."""
        return self.copy()

    def dim(self) -> int:
        """The number of dimensions."""
        return int(self.ndim)

    def numel(self) -> int:
        """The number of elements."""
        return int(self.size)

    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""
        return bool(self.dtype.kind == "f")

    def squeeze(self, dim: Any = None, *, axis: Any = None) -> Any:
        """Without dimensions of length 1; a dimension of another length stays, as in torch."""
        if dim is None:
            return _wrapped(super().squeeze(axis))
        dims = [dim] if isinstance(dim, int) else list(dim)
        return _wrapped(super().squeeze(tuple(n for n in dims if self.shape[n] == 1)))

    def unsqueeze(self, dim: int) -> Any:
        """With another dimension of length 1."""
        return _wrapped(np.expand_dims(self, dim))

    def permute(self, *dims: Any) -> Any:
        """With its dimensions in another order."""
        return _wrapped(super().transpose(*dims))

    def transpose(self, *dims: Any) -> Any:
        """With two dimensions exchanged; numpy's, with a tuple or nothing."""
        if len(dims) == 2:
            return _wrapped(super().swapaxes(*dims))
        return _wrapped(super().transpose(*dims))

    def view(self, *shape: Any, **rest: Any) -> Any:
        """With another shape; numpy's, with a dtype or a class."""
        is_shape = shape and all(isinstance(n, int | np.integer | tuple | list) for n in shape)
        return self.reshape(*shape) if is_shape else super().view(*shape, **rest)

    def view_as(self, other: Any) -> Any:
        """With the shape of another."""
        return self.reshape(tuple(other.shape))

    reshape_as = view_as

    def flatten(self, start_dim: Any = 0, end_dim: int = -1, order: str = "C") -> Any:
        """With some neighbouring dimensions as one."""
        if isinstance(start_dim, str):
            return _wrapped(super().flatten(start_dim))
        first, last = start_dim % max(self.ndim, 1), end_dim % max(self.ndim, 1)
        return _wrapped(self.reshape(*self.shape[:first], -1, *self.shape[last + 1 :]))

    def expand(self, *sizes: Any) -> Any:
        """Dimensions of length 1 repeated without a copy; -1 keeps a dimension."""
        wanted = list(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
        own = (1,) * (len(wanted) - self.ndim) + tuple(self.shape)
        shape = [n if n != -1 else old for n, old in zip(wanted, own, strict=True)]
        return _wrapped(np.broadcast_to(self, shape))

    def expand_as(self, other: Any) -> Any:
        """Expanded to the shape of another."""
        return self.expand(*other.shape)

    def repeat(self, *sizes: Any, axis: Any = _UNSET) -> Any:
        """Tiled, as in torch; numpy's, with `axis`."""
        if axis is not _UNSET:
            return _wrapped(super().repeat(*sizes, axis=axis))
        return _wrapped(np.tile(np.asarray(self), sizes[0] if len(sizes) == 1 else sizes))

    def clamp(self, min: Any = None, max: Any = None) -> Any:
        """Between two limits."""
        return _wrapped(np.clip(np.asarray(self), to_host(min), to_host(max)))

    def argmax(self, dim: Any = None, keepdim: bool = False, *, axis: Any = None, **_: Any) -> Any:
        """The index of the largest element, of all or along a dimension."""
        return _wrapped(np.asarray(self).argmax(dim if axis is None else axis, keepdims=keepdim))

    def argmin(self, dim: Any = None, keepdim: bool = False, *, axis: Any = None, **_: Any) -> Any:
        """The index of the smallest element, of all or along a dimension."""
        return _wrapped(np.asarray(self).argmin(dim if axis is None else axis, keepdims=keepdim))

    def sort(self, dim: int = -1, descending: bool = False, **rest: Any) -> Any:
        """Sorted values and their indices; numpy's, in place, with `axis`."""
        if "axis" in rest:
            return super().sort(**rest)
        order = self.argsort(dim, descending)
        return ValuesAndIndices(_wrapped(np.take_along_axis(np.asarray(self), order, dim)), order)

    def argsort(self, dim: int = -1, descending: bool = False, **rest: Any) -> Any:
        """The order of the elements along a dimension."""
        values = np.asarray(self)
        if "axis" in rest:
            return _wrapped(values.argsort(**rest))
        order = values.argsort(dim, kind="stable")
        return _wrapped(np.flip(order, dim) if descending else order)

    def topk(self, k: int, dim: int = -1, largest: bool = True) -> ValuesAndIndices:
        """The k largest or smallest values along a dimension, and their indices."""
        values, order = self.sort(dim, descending=largest)
        first = range(k)
        return ValuesAndIndices(values.take(first, axis=dim), order.take(first, axis=dim))

    def nonzero(self, *, as_tuple: bool = False) -> Any:
        """The indices of what is not 0: [N, dims], or as numpy's an array per dimension."""
        found = tuple(_wrapped(part) for part in np.asarray(self).nonzero())
        return found if as_tuple else _wrapped(np.stack(found, axis=1))

    def sigmoid(self) -> Any:
        """Logits as probabilities."""
        half = self.dtype.type(0.5)
        return _wrapped(half * np.tanh(half * np.asarray(self)) + half)

    def masked_fill(self, mask: Any, value: Any) -> Any:
        """A copy with `value` where the mask is set."""
        return _wrapped(np.where(to_host(mask), np.asarray(value, self.dtype), self))

    def unbind(self, dim: int = 0) -> Any:
        """The slices along a dimension."""
        return tuple(np.moveaxis(self, dim, 0))

    cpu = detach = contiguous = requires_grad_ = pin_memory = resolve_conj = _itself
    float, double, half = _cast(np.float32), _cast(np.float64), _cast(np.float16)
    int, long, short, byte = map(_cast, (np.int32, np.int64, np.int16, np.uint8))
    bool, bfloat16 = _cast(np.bool_), _cast(BFLOAT16)
    sum, mean, prod, std, var = map(_reduction, ("sum", "mean", "prod", "std", "var"))
    any, all, cumsum = map(_reduction, ("any", "all", "cumsum"))
    max, min = _extreme("max"), _extreme("min")
    amax, amin = _reduction("max"), _reduction("min")
    gt, lt, ge, le = map(_binary, (np.greater, np.less, np.greater_equal, np.less_equal))
    eq, ne, mul, add = map(_binary, (np.equal, np.not_equal, np.multiply, np.add))
    logical_and, logical_or = _binary(np.logical_and), _binary(np.logical_or)
    exp, log, sqrt, abs = map(_unary, (np.exp, np.log, np.sqrt, np.abs))
    floor, ceil, logical_not = map(_unary, (np.floor, np.ceil, np.logical_not))


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return np.asarray(value)
    return type(value)(map(_plain, value)) if isinstance(value, list | tuple) else value


def _again(found: Any) -> Any:
    if isinstance(found, list) or type(found) is tuple:
        return type(found)(map(_again, found))
    return found.view(Tensor) if isinstance(found, np.ndarray) else found


def _for_torch(value: Any, device: Any) -> Any:
    if isinstance(value, Tensor):
        found = as_torch(value)
        return found if device is None else found.to(device)
    if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
        return type(value)([_for_torch(item, device) for item in value])
    return value


def _key(key: Any) -> Any:
    return tuple(map(to_host, key)) if isinstance(key, tuple) else to_host(key)


def _moved(array: Any, device: Any) -> Any:
    if imported_torch() is None:
        raise OptionError(
            "results are in main memory", got=f"`{device}`", hint="import torch to move them"
        )
    return as_torch(array).to(device)
