"""Programs replayed as CUDA graphs: one launch for hundreds of kernels.

A graph is captured for each set of input shapes, the second time these occur: lengths that come
once, as while a memory bank fills, are run kernel by kernel. A replay reads inputs from static
buffers, into which the caller's are copied, and its outputs are copied out, so that the caller owns
them. Nothing waits for the GPU. All captures of a program share one pool of memory, and take
turns: a program may be run from several threads and streams, and different programs overlap.

Tables, inputs of which rows are gathered and nothing else, are not copied. The graph reads their
address from a buffer, so that one capture serves tables of any length, anywhere.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch

from samgraph.engines.torch.tables import Table

Tensors = dict[str, torch.Tensor]
Compute = Callable[[Mapping[str, "torch.Tensor | Table"]], Tensors]
Key = tuple[object, ...]

MOST_CAPTURES = 32
_MOST_COUNTED = 4096


@dataclass(frozen=True, slots=True)
class _Capture:
    """A graph and the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensors
    tables: dict[str, Table]
    outputs: Tensors


class GraphRunner:
    """Runs one program on one GPU.

    Args:
        compute: Named inputs to named outputs, the same kernels for the same shapes.
        tables: The inputs that are tables.
        device: The GPU.
        captures: The most captures to keep; the least recently used is dropped first.
    """

    def __init__(
        self,
        compute: Compute,
        tables: frozenset[str],
        device: torch.device,
        captures: int = MOST_CAPTURES,
    ) -> None:
        self._compute, self._tables, self._device = compute, tables, device
        self._most = captures
        self._captures: OrderedDict[Key, _Capture] = OrderedDict()
        self._seen: set[Key] = set()
        self._is_short = False  # of memory: nothing is captured
        self._lock = threading.Lock()
        self._pool: tuple[int, int] | None = None
        self._stream: torch.cuda.Stream | None = None
        self._done: torch.cuda.Event | None = None

    def run(self, inputs: Tensors) -> Tensors:
        """Named outputs that share no memory with anything."""
        key = tuple(self._shape(name, tensor) for name, tensor in inputs.items())
        now = torch.cuda.current_stream(self._device)
        for tensor in inputs.values():
            tensor.record_stream(now)  # it may come from another stream
        with self._lock:
            capture = self._captures.get(key)
            if self._is_short:
                pass
            elif capture is None and key not in self._seen:
                if len(self._seen) >= _MOST_COUNTED:
                    self._seen.clear()
                self._seen.add(key)
            elif capture is None:
                capture = self._capture(key, inputs)
            else:
                self._captures.move_to_end(key)
            if capture is not None:
                return self._replay(capture, inputs, now)
        return self._compute(inputs)

    def release(self) -> bool:
        """Let go of all captures and make no more; whether that gave memory back."""
        with self._lock:
            had, self._is_short = bool(self._captures), True
            self._captures.clear()
            self._pool = None
        torch.cuda.empty_cache()
        return had

    def _shape(self, name: str, tensor: torch.Tensor) -> tuple[int, ...]:
        """What a capture depends on; of a table, the shape of its rows."""
        if name in self._tables:
            return tuple(tensor.shape[1:])
        return (*tensor.shape, _is_repeated(tensor))

    def _replay(self, capture: _Capture, inputs: Tensors, now: torch.cuda.Stream) -> Tensors:
        if self._done is not None:
            now.wait_event(self._done)
        if capture.inputs:
            given = [_once(inputs[name]) for name in capture.inputs]
            torch._foreach_copy_(list(capture.inputs.values()), given)
        for name, table in capture.tables.items():
            table.point_to(inputs[name])
        capture.graph.replay()
        outputs = {name: tensor.clone() for name, tensor in capture.outputs.items()}
        self._done = torch.cuda.Event() if self._done is None else self._done
        self._done.record(now)
        return outputs

    def _capture(self, key: Key, inputs: Tensors) -> _Capture:
        """Run once more on a separate stream, and record what was launched."""
        if self._stream is None or self._pool is None:
            self._stream = torch.cuda.Stream(self._device)
            self._pool = torch.cuda.graph_pool_handle()
        while len(self._captures) >= self._most:
            self._captures.popitem(last=False)
        static = {
            name: torch.empty_strided(x.shape, _dense(x), dtype=x.dtype, device=x.device).copy_(x)
            for name, x in ((name, _once(x)) for name, x in inputs.items())
            if name not in self._tables
        }
        read = {name: x.expand(inputs[name].shape) for name, x in static.items()}
        tables = {name: Table(inputs[name]) for name in inputs if name in self._tables}
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                outputs = self._compute({**read, **tables})
            except BaseException:
                with suppress(RuntimeError):  # the first error is the one to tell
                    graph.capture_end()
                raise
            graph.capture_end()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._captures[key] = capture = _Capture(graph, static, tables, outputs)
        return capture


def _is_repeated(x: torch.Tensor) -> bool:
    """Whether it is expanded along the first axis (stride 0)."""
    return x.ndim > 1 and len(x) > 1 and x.stride(0) == 0


def _once(x: torch.Tensor) -> torch.Tensor:
    """The first of an expanded tensor's equal parts; any other tensor as it is."""
    return x[:1] if _is_repeated(x) else x


def _dense(x: torch.Tensor) -> tuple[int, ...]:
    """Strides without gaps that keep the order of a tensor's axes in memory."""
    strides, step = [0] * x.ndim, 1
    for axis in sorted(range(x.ndim), key=lambda axis: (x.stride(axis), -axis)):
        strides[axis] = step
        step *= x.shape[axis]
    return tuple(strides)
