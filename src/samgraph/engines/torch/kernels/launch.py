"""Launching Triton kernels without Triton's own launcher, which wants a C compiler.

Triton compiles a kernel to a cubin with its own tools, and keeps it in its cache
folder. Here that cubin is loaded and launched through the CUDA driver. On tensors of the CPU a
kernel runs in Triton's interpreter, if `TRITON_INTERPRET=1` was set before it was imported.

Inside `compile_only` kernels are compiled in parallel and not launched: a graph that does so before
its first run waits for the slowest of its kernels, not for their sum.
"""

import ctypes
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from samgraph.errors import EngineError

Grid = tuple[int, ...]

_TYPES = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16",
    torch.int64: "*i64", torch.int32: "*i32", torch.uint8: "*u8", torch.bool: "*i1",
}  # fmt: skip
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SMALL_SHARED = 48 << 10  # what a block may use without opting in


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A kernel on one GPU: its handle, threads of a block, shared memory, trailing pointers."""

    function: ctypes.c_void_p
    threads: int
    shared: int
    pointers: int


def block_width(width: int) -> int:
    """The block that holds `width` elements: a power of two, at least 16 for the matrix units."""
    power: int = triton.next_power_of_2(width)
    return max(16, power)


class Kernel:
    """A Triton kernel; arguments are tensors and numbers, constants are named."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._loaded: dict[tuple[object, ...], _Loaded] = {}
        self._lock = threading.Lock()

    def __call__(
        self,
        grid: Grid,
        *arguments: torch.Tensor | float | int,
        warps: int = 4,
        stages: int = 2,
        **constants: object,
    ) -> None:
        """Launch the kernel on the current stream of the first tensor's device."""
        tensor = next(x for x in arguments if isinstance(x, torch.Tensor))
        if not tensor.is_cuda:
            self._function[grid](*arguments, **constants)
            return
        kinds = tuple(_kind(argument) for argument in arguments)
        key = (tensor.device.index, kinds, warps, stages, *constants.values())
        loaded = self._loaded.get(key)
        jobs = getattr(_REHEARSAL, "jobs", None)
        if jobs is not None:
            if loaded is None and (id(self), key) not in jobs:
                capability = torch.cuda.get_device_capability(tensor.device)
                wanted = (kinds, constants, warps, stages, 10 * capability[0] + capability[1])
                jobs[id(self), key] = _COMPILERS.submit(self.compile, *wanted)
            return
        if loaded is None:
            loaded = self._load(key, tensor.device, kinds, constants, warps, stages)
        stream = torch._C._cuda_getCurrentRawStream(tensor.device.index)
        _start(loaded, grid, stream, arguments, kinds)

    def _load(
        self,
        key: tuple[object, ...],
        device: torch.device,
        kinds: tuple[tuple[str, bool], ...],
        constants: dict[str, object],
        warps: int,
        stages: int,
    ) -> _Loaded:
        major, minor = torch.cuda.get_device_capability(device)
        compiled = self.compile(kinds, constants, warps, stages, 10 * major + minor)
        with self._lock, torch.cuda.device(device):
            self._loaded[key] = loaded = _load(compiled, warps)
        return loaded

    def compile(
        self,
        kinds: Sequence[tuple[str, bool]],
        constants: dict[str, object],
        warps: int,
        stages: int,
        capability: int,
    ) -> Any:
        """The kernel for a kind of GPU, such as 90; no GPU is needed for this.

        `kinds` are the types of the arguments, each with whether 16 divides it.
        """
        names = self._function.arg_names
        signature = dict(zip(names, (kind for kind, _ in kinds), strict=False))
        signature.update(dict.fromkeys(constants, "constexpr"))
        attributes = {
            (index,): [["tt.divisibility", 16]]
            for index, (_, divides) in enumerate(kinds)
            if divides
        }
        source = ASTSource(self._function, signature, constants, attributes)
        target = GPUTarget("cuda", capability, 32)
        try:
            return triton.compile(
                source, target=target, options={"num_warps": warps, "num_stages": stages}
            )
        except Exception as error:
            name = self._function.__name__.strip("_")
            raise EngineError(
                f"kernel `{name}` cannot be compiled for this GPU",
                got=str(error).strip().split("\n")[0],
                hint='use device="cpu"',
            ) from error


_REHEARSAL = threading.local()
_COMPILERS = ThreadPoolExecutor(max_workers=16, thread_name_prefix="samgraph-kernels")


@contextmanager
def compile_only() -> Iterator[None]:
    """Kernels called by this thread are compiled, all of them on exit, and not launched.

    Their outputs keep whatever is in memory. A kernel that cannot be compiled raises when it is
    launched.
    """
    jobs: dict[object, Future[Any]] = {}
    _REHEARSAL.jobs = jobs
    try:
        yield
    finally:
        _REHEARSAL.jobs = None
        wait(jobs.values())


def _kind(argument: torch.Tensor | float | int) -> tuple[str, bool]:
    """The type of an argument as Triton names it, and whether 16 divides it."""
    if isinstance(argument, torch.Tensor):
        return _TYPES[argument.dtype], argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return ("i32" if abs(argument) < 1 << 31 else "i64"), argument % 16 == 0
    return "fp32", False


@cache
def _driver() -> ctypes.CDLL:
    """The CUDA driver, which torch has loaded already."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise EngineError("the CUDA driver library cannot be opened", hint='use device="cpu"')


def _check(code: int, what: str) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise EngineError(f"a kernel could not be {what}", got=(text.value or b"").decode())


def _load(compiled: Any, warps: int) -> _Loaded:
    """Bring a cubin to the current device; it stays for the life of the process."""
    driver, image = _driver(), compiled.asm["cubin"]
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    name = compiled.metadata.name.encode()
    _check(driver.cuModuleLoadData(ctypes.byref(module), image), "loaded")
    _check(driver.cuModuleGetFunction(ctypes.byref(function), module, name), "found")
    shared = int(compiled.metadata.shared)
    if shared > _SMALL_SHARED:
        code = driver.cuFuncSetAttribute(function, _DYNAMIC_SHARED, shared)
        _check(code, f"given {shared} bytes of shared memory")
    return _Loaded(function, 32 * warps, shared, hidden_pointers(compiled))


def hidden_pointers(compiled: Any) -> int:
    """How many pointers a kernel takes after its own arguments; ours are all empty."""
    text: str = compiled.asm["ptx"]
    head = text[text.index(".entry") :]
    kinds: list[str] = list(compiled.src.signature.values())
    given = sum(kind != "constexpr" for kind in kinds)
    return head[: head.index(")")].count(".param") - given


_NUMBERS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}


def _start(
    loaded: _Loaded,
    grid: Grid,
    stream: int,
    arguments: Sequence[torch.Tensor | float | int],
    kinds: Sequence[tuple[str, bool]],
) -> None:
    values: list[Any] = [
        ctypes.c_void_p(argument.data_ptr())
        if isinstance(argument, torch.Tensor)
        else _NUMBERS[kind](argument)  # type: ignore[arg-type]  # the kind says which
        for argument, (kind, _) in zip(arguments, kinds, strict=True)
    ]
    values += [ctypes.c_void_p(0)] * loaded.pointers
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    x, y, z = (*grid, 1, 1)[:3]
    code = _driver().cuLaunchKernel(
        loaded.function, x, y, z, loaded.threads, 1, 1, loaded.shared,
        ctypes.c_void_p(stream), pointers, None,
    )  # fmt: skip
    _check(code, "started")
