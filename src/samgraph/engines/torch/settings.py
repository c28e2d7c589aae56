"""Settings that torch keeps for the whole process, held for as long as a graph runs.

Left alone, torch computes float32 convolutions on a GPU in TF32, ten bits of fraction, and a
process may have asked for the same in matrix products. There is no way to say so for one call, so
the settings are changed and put back. Several threads may run graphs at once: the first one in
makes the change, and the last one out undoes it. Other torch code that runs meanwhile, in another
thread, sees the change too.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


class _Held:
    """How many threads want a change now, and how to undo it."""

    def __init__(self) -> None:
        self.lock, self.users, self.undo = threading.Lock(), 0, ExitStack()
        self.threads = 0  # what the process had before


_PRECISION, _THREADS = _Held(), _Held()


@contextmanager
def plain_float32() -> Iterator[None]:
    """Float32 means float32: no TF32, and of cuDNN's algorithms only repeatable ones.

    `evaluate` holds this while it runs forward; hold it round `backward()` as well where the
    gradients are to be as good.
    """
    with _PRECISION.lock:
        if not _PRECISION.users:
            _PRECISION.undo.enter_context(_cudnn())
            _PRECISION.undo.enter_context(_products())
        _PRECISION.users += 1
    try:
        yield
    finally:
        with _PRECISION.lock:
            _PRECISION.users -= 1
            if not _PRECISION.users:
                _PRECISION.undo.close()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """At most `count` threads for what this thread computes on the CPU.

    Torch counts threads for each calling thread, but its matrix library for the process: of two
    programs with different counts that run at the same time, one may get the other's.
    """
    with _THREADS.lock:
        if not _THREADS.users:
            _THREADS.threads = torch.get_num_threads()
        _THREADS.users += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _THREADS.lock:
            _THREADS.users -= 1
            torch.set_num_threads(_THREADS.threads)


@contextmanager
def _cudnn() -> Iterator[None]:
    enabled = torch.backends.cudnn.enabled
    with torch.backends.cudnn.flags(
        enabled=enabled, benchmark=False, deterministic=True, allow_tf32=False
    ):
        yield


@contextmanager
def _products() -> Iterator[None]:
    """Matrix products in whole float32, by whichever of torch's two interfaces was used before."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer interface was used, and the older refuses to answer
        products = torch.backends.cuda.matmul
        newer, products.fp32_precision = products.fp32_precision, "ieee"
        try:
            yield
        finally:
            products.fp32_precision = newer
        return
    if before != "highest":
        torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if before != "highest":
            torch.set_float32_matmul_precision(before)
