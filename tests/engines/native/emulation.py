"""Kernels for instructions that this machine lacks: AMX in C, NEON in QEMU."""

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from samgraph.engines.native import Kernels, find_kernels
from samgraph.engines.native.library import load_kernels
from tests.engines.native.compilers import (
    HERE,
    SOURCES,
    TILES,
    compile_c,
    own_compiler,
    qemu_for,
    zig_for,
)

NEON = 1  # of the sets in attention.c
_KEPT: list[tempfile.TemporaryDirectory[str]] = []  # until the tests end


def folder() -> Path:
    """A new folder for the rest of the session."""
    _KEPT.append(tempfile.TemporaryDirectory(prefix="samgraph-native-"))
    return Path(_KEPT[-1].name)


def needs_avx512_bf16() -> None:
    """Only the tiles of AMX are emulated; the rest of that path is AVX-512."""
    found = find_kernels()
    if found is None or "bf16" not in found.instructions:
        pytest.skip("this processor has no AVX-512 with bf16")


def library_with_tiles(*options: str) -> Path:
    """`attention.c` with the instructions of AMX in C."""
    needs_avx512_bf16()
    library = folder() / "tiles.lib"
    flags = ("-O2", "-fPIC", "-shared", *TILES, *options)
    compile_c(own_compiler(), *flags, str(SOURCES / "attention.c"), "-o", str(library))
    return library


@cache
def tiles_in_c() -> Kernels:
    """The kernels for AMX."""
    kernels = load_kernels(library_with_tiles())[-1]
    assert kernels.instructions == "amx_bf16", "the probe found an error"
    return kernels


@cache
def neon_in_qemu() -> Kernels:
    """The kernels for NEON, each call in a process of its own."""
    program = folder() / "remote"
    words = ("-O3", "-static", str(HERE / "remote.c"), "-o", str(program))
    qemu = qemu_for("aarch64")
    compile_c(zig_for("aarch64-linux-musl"), *words)
    return Kernels(cast(ctypes.CDLL, Remote([qemu, str(program), "neon"])), "neon", NEON)


class Remote:
    """The functions of `attention.c` in another process, which runs `remote.c`."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def sg_attention(self, reference: Any, chosen: int, threads: int) -> int:
        """As in `attention.c`."""
        job = reference._obj
        B, H, T, S, D, E = sizes = [
            job.batch, job.heads, job.queries, job.keys, job.width, job.value_width
        ]  # fmt: skip
        strides = list(job.mask_strides)
        mask = 1 + sum((n - 1) * stride for n, stride in zip((B, H, T, S), strides, strict=True))
        arrays = [(job.q, B * T * H * D), (job.k, B * S * H * D), (job.v, B * S * H * E)]
        arrays.append((job.mask, mask))
        head = [0, chosen, threads, *sizes, *strides]
        return self._run(head, job.scale, arrays, job.out, B * T * H * E)

    def sg_memory_attention(self, reference: Any, chosen: int, threads: int) -> int:
        """As in `attention.c`."""
        job = reference._obj
        N, T, plain, D, C, E = sizes = [
            job.batch, job.queries, job.plain, job.width, job.channels, job.value_width
        ]  # fmt: skip
        grids = [(part.frames, part.rows, part.columns) for part in job.parts]
        S = plain + sum(frames * rows * columns for frames, rows, columns in grids)
        arrays = [(job.q, N * T * D), (job.k, N * S * C), (job.v, N * S * E), (job.mask, S)]
        arrays += [(job.weight, D * C), (job.bias, D), *((c, D // 2) for c in job.centres)]
        for part, (_, rows, columns) in zip(job.parts, grids, strict=True):
            sides = (columns, columns, rows, rows)
            halves = [(side + 1) // 2 * D // 4 for side in sides]
            arrays += list(zip(part.tables, halves, strict=True))
        head = [1, chosen, threads, *sizes, *(n for grid in grids for n in grid), job.rounded]
        return self._run(head, job.scale, arrays, job.out, N * T * E)

    def _run(
        self, head: list[int], scale: float, arrays: list[tuple[int | None, int]], out: int, n: int
    ) -> int:
        words = np.zeros(24, np.int64)
        words[: len(head)], words[23] = head, n
        sent = [words.tobytes(), np.float32(scale).tobytes()]
        for address, count in arrays:
            length = count if address else 0
            data = ctypes.string_at(address, 4 * length) if address else b""
            sent += [np.int64(length).tobytes(), data]
        command = self._command
        done = subprocess.run(
            command, input=b"".join(sent), capture_output=True, timeout=100, check=False
        )
        assert (done.returncode, len(done.stdout)) == (0, 4 * n), done.stderr[-2000:]
        ctypes.memmove(out, done.stdout, 4 * n)
        return 0
