"""Graphs of a model by name: traced once, compiled when they are first run.

The base class of every family's model. Most calls are for one image, prompt or object, and engines
are faster with a fixed size: graphs named in `for_one` are also compiled for a batch of one.

Where the device has no memory left, a graph runs in smaller batches from then on; and where not
even one image, prompt or object fits, the model moves to the CPU. Nothing that was computed is
lost: buffers of the device are copied when they are next read.
"""

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar

from samgraph.checkpoint import LoadReport
from samgraph.checkpoint.match import MEMORY
from samgraph.engines import Buffers
from samgraph.engines.devices import DeviceLike
from samgraph.engines.moved import MovedBuffers
from samgraph.errors import CheckpointError, DeviceMemoryError, GraphError, SamgraphWarning
from samgraph.graph import Array, Graph
from samgraph.models.batches import BatchAxis
from samgraph.passes.drop_unused import drop_unused
from samgraph.passes.rewriter import Rewriter
from samgraph.passes.specialise import specialise
from samgraph.runtime import CompileOptions, Session


class CompiledModel:
    """Weights, and graphs that read them. Safe to use from several threads at once.

    Args:
        config: Every dimension of the model.
        weights: The tensors of its checkpoint, in float32.
        trace: Traces graphs from the config, by name.
        names: The names of the graphs.
        for_one: For graphs that are also compiled for a batch of one: the symbol, and the input
            whose first axis has that length.
        exact: Graphs that are computed in the engine's `exact_precision` whatever the precision.
        device: The device it runs on.
        options: How graphs are compiled.
        traced: Graphs already traced.

    `prompt_graphs` are the graphs that points on an encoded image run.
    """

    prompt_graphs: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        config: Any,
        weights: Mapping[str, Array],
        *,
        trace: Callable[[Any, Iterable[str]], dict[str, Graph]],
        names: tuple[str, ...],
        for_one: Mapping[str, tuple[str, str]],
        exact: frozenset[str],
        device: DeviceLike = "auto",
        options: CompileOptions | None = None,
        traced: Mapping[str, Graph] | None = None,
    ) -> None:
        self.config: Any = config
        self.weights: Mapping[str, Array] = dict(weights)
        options = options or CompileOptions()
        self.session = self._exact = Session(device, options)
        exact_precision = self.session.engine.exact_precision
        if self.session.precision not in ("fp32", exact_precision):
            self._exact = Session(device, replace(options, precision=exact_precision))
        self.buffers: Buffers = self.session.buffers
        self._trace, self._names = trace, names
        self._for_one, self._exact_names = for_one, exact
        self._traced: dict[str, Graph] = dict(traced or {})
        self._compiled: dict[str, Any] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._largest: dict[str, int] = {}  # batches that the device has memory for, by graph
        self._was_full, self._moving = False, threading.RLock()
        self.graphs: Mapping[str, Any] = GraphTable(self, names)
        self.report = LoadReport()

    def __repr__(self) -> str:
        return f"<{self.config.name} at {self.config.image_size} px: {self.session.reason}>"

    def graph(self, name: str) -> Graph:
        """The graph called `name`, as traced."""
        if name not in self._names:
            raise GraphError(f"there is no graph `{name}`", expected=", ".join(self._names))
        if name not in self._traced:
            self._traced |= self._trace(self.config, [name])
        return self._traced[name]

    def compiled(self, name: str, *, for_one: bool = False) -> Any:
        """The graph called `name`, ready to run; `for_one` is its version for a batch of one.

        A thread waits only for a compilation of the same graph.
        """
        key = f"{name} for one" if for_one else name
        known, used = self._compiled, self.buffers
        if key not in known:
            try:
                with self._locks.setdefault(key, threading.Lock()):
                    if key not in known:
                        known[key] = self._compile(name, for_one)
            except DeviceMemoryError as error:
                full = error
            else:
                return known[key]
            self.leave_device(full, used)
            return self.compiled(name, for_one=for_one)
        return known[key]

    @contextmanager
    def compiling_for_prompts(self) -> Iterator[None]:
        """Compile what points on an image need, in a thread while the block runs, on a CPU.

        So it is ready when the first image has been encoded. On other devices a graph may be
        recorded meanwhile, which nothing may disturb. What goes wrong is raised where it is run.
        """
        names = self.prompt_graphs
        keys = {f"{name} for one" if name in self._for_one else name for name in names}
        if self.session.device.kind != "cpu" or keys <= self._compiled.keys():
            yield
            return
        thread = threading.Thread(target=self._compile_quietly, args=(names,))
        thread.start()
        try:
            yield
        finally:
            thread.join()

    def _compile_quietly(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(Exception):
                self.compiled(name, for_one=name in self._for_one)

    def run(self, name: str, **inputs: Any) -> dict[str, Any]:
        """Run a graph by name: buffers in, buffers out."""
        if self._was_full:
            inputs = self._here(inputs)
            axis, most = BatchAxis.of(self.graph(name)), self._largest.get(name)
            if axis is not None and most is not None and axis.length(inputs) > most:
                parts = [self.run(name, **part) for part in axis.split(inputs, most)]
                return {key: self.buffers.concat([p[key] for p in parts]) for key in parts[0]}
        used, sized_by = self.buffers, self._for_one.get(name, ("", ""))[1]
        for_one = sized_by in inputs and len(inputs[sized_by]) == 1
        program, full = self.compiled(name, for_one=for_one), None
        try:
            if self.buffers is used:
                outputs: dict[str, Any] = program.run(inputs)
                return outputs
        except DeviceMemoryError as error:
            full = error
        if full is not None:
            self._retreat(name, inputs, full, used)
        return self.run(name, **inputs)

    def leave_device(self, full: DeviceMemoryError, used: Buffers) -> None:
        """Run on the CPU, in fp32, because there is no memory left where `used` buffers are.

        Raises:
            DeviceMemoryError: `full`, where the CPU is what it runs on.
        """
        with self._moving:
            if self.buffers is not used:  # another thread was first
                return
            if self.session.device.kind == "cpu":
                raise full
            device, options = self.session.device, self.session.options
            here = Session("cpu", replace(options, engine=None, precision=None))
            # In this order: a run in another thread sees by the buffers that it must start again.
            self._was_full, self.buffers = True, MovedBuffers(here.buffers, used)
            self.session = self._exact = here
            self._compiled, self._largest = {}, {}
        warnings.warn(
            f"{full.what}: the model moves from `{device}` to the CPU, which is slower; free "
            "memory there and load it again, or load a smaller model",
            SamgraphWarning,
            stacklevel=2,
        )

    def _retreat(
        self, name: str, inputs: Mapping[str, Any], full: DeviceMemoryError, used: Buffers
    ) -> None:
        """Make the batches of a graph smaller; where they are of one, leave the device."""
        axis = BatchAxis.of(self.graph(name))
        count = 1 if axis is None else axis.length(inputs)
        if count == 1:
            self.leave_device(full, used)
            return
        with self._moving:
            if self.buffers is not used:
                return
            most = self._largest[name] = min(count // 2, self._largest.get(name, count))
            self._was_full = True
        warnings.warn(
            f"{full.what} with a batch of {count}: from now on batches of {most} are run, which "
            "is slower; free memory on the device and load the model again to undo that",
            SamgraphWarning,
            stacklevel=2,
        )

    def _here(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs of which none is on a device that was left."""
        buffers = self.buffers
        if not isinstance(buffers, MovedBuffers):
            return dict(inputs)
        return {name: buffers.here(value) for name, value in inputs.items()}

    def session_for(self, name: str) -> Session:
        """The session that compiles a graph: exact where lower precision degrades masks."""
        return self._exact if name in self._exact_names else self.session

    def _compile(self, name: str, for_one: bool) -> Any:
        graph = computable(self.graph(name), self.weights)
        if for_one:
            graph = specialise(graph, {self._for_one[name][0]: 1})
        return self.session_for(name).compile(graph, self.weights)


def computable(graph: Graph, weights: Mapping[str, Array]) -> Graph:
    """The graph; of an image-only checkpoint, without the outputs that only videos need.

    Raises:
        CheckpointError: Other weights are missing, or no output is left.
    """
    missing = [value.name for value in graph.params if value.name not in weights]
    if not missing:
        return graph
    unknown, rewriter = set(missing), Rewriter(graph)
    for node in graph:
        rewriter.keep(node)
        if any(value.name in unknown for value in node.inputs):
            unknown.add(node.result.name)
    outputs = tuple((name, value) for name, value in graph.outputs if value.name not in unknown)
    if not outputs or not all(name.startswith(MEMORY) for name in missing):
        raise CheckpointError(
            f"the checkpoint has no weights for `{graph.name}`",
            got=f"`{missing[0]}` and {len(missing) - 1} more are missing",
            hint="load the whole checkpoint",
        )
    return drop_unused(rewriter.finish(outputs))


class GraphTable(Mapping[str, Any]):
    """The model's graphs by name, compiled on first access."""

    def __init__(self, model: CompiledModel, names: tuple[str, ...]) -> None:
        self._model, self._names = model, names

    def __getitem__(self, name: str) -> Any:
        return self._model.compiled(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
