"""Settings that torch keeps for the whole process, held for as long as a graph runs.

Left alone, torch computes float32 convolutions on a GPU in TF32, ten bits of fraction, and a
process may have asked for the same in matrix products. There is no way to say so for one call, so
the settings are changed and put back. Several threads may run graphs at once: the first one in
makes the change, and the last one out undoes it. Other torch code that runs meanwhile, in another
thread, sees the change too.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

_LOCK = threading.Lock()
_USERS = {"plain": 0, "fast": 0}  # how many threads want float32 as it is, and in TF32
_UNDO: list[Callable[[], None]] = []


@contextmanager
def plain_float32() -> Iterator[None]:
    """Float32 means float32: no TF32, and of cuDNN's algorithms only repeatable ones.

    `evaluate` holds this while it runs forward; hold it round `backward()` as well where the
    gradients are to be as good.
    """
    with _held("plain"):
        yield


@contextmanager
def fast_float32() -> Iterator[None]:
    """Float32 products in TF32, except while another thread holds `plain_float32`."""
    with _held("fast"):
        yield


@contextmanager
def _held(kind: str) -> Iterator[None]:
    with _LOCK:
        if not any(_USERS.values()):
            _UNDO[:] = [_saved_cudnn(), _saved_products()]
        _USERS[kind] += 1
        _choose(tf32=not _USERS["plain"])
    try:
        yield
    finally:
        with _LOCK:
            _USERS[kind] -= 1
            if any(_USERS.values()):
                _choose(tf32=not _USERS["plain"])
            else:
                for undo in _UNDO:
                    undo()


def _choose(*, tf32: bool) -> None:
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.deterministic = False, True
    cudnn.allow_tf32 = tf32
    _set_products("tf32" if tf32 else "ieee")


def _saved_cudnn() -> Callable[[], None]:
    cudnn = torch.backends.cudnn
    before = (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)

    def undo() -> None:
        cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = before

    return undo


_OLDER = {"ieee": "highest", "tf32": "high"}


def _saved_products() -> Callable[[], None]:
    """How to put back the precision of products, by whichever of torch's interfaces was used."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer interface was used, and the older refuses to answer
        products = torch.backends.cuda.matmul
        newer = products.fp32_precision

        def undo() -> None:
            products.fp32_precision = newer

        return undo
    return lambda: torch.set_float32_matmul_precision(before)


def _set_products(precision: str) -> None:
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        torch.backends.cuda.matmul.fp32_precision = precision
        return
    if before != _OLDER[precision]:
        torch.set_float32_matmul_precision(_OLDER[precision])


class _Threads:
    """How many users there are, and what the process had before."""

    lock, users, before = threading.Lock(), 0, 0


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """At most `count` threads for what this thread computes on the CPU.

    Torch counts threads for each calling thread, but its matrix library for the process: of two
    programs with different counts that run at the same time, one may get the other's.
    """
    with _Threads.lock:
        if not _Threads.users:
            _Threads.before = torch.get_num_threads()
        _Threads.users += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _Threads.lock:
            _Threads.users -= 1
            torch.set_num_threads(_Threads.before)
