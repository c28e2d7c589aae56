"""Sessions: where graphs are compiled and run.

session = Session("cpu", CompileOptions(threads=2))
compiled = session.compile(graph, weights)
outputs = compiled.run(x=array)
"""

import threading
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from operator import attrgetter
from typing import Any

import numpy as np

from samgraph.engines import (
    Buffers,
    Device,
    Engine,
    EngineOptions,
    MemoryUsage,
    Precision,
    Program,
)
from samgraph.engines.devices import DeviceLike
from samgraph.errors import CheckpointError, EngineError, InputError, OptionError, SamgraphWarning
from samgraph.graph.binding import bind, check_lengths
from samgraph.graph.graph import Graph, Node
from samgraph.graph.types import Array, numpy_dtype, type_of
from samgraph.graph.verifier import show, verify
from samgraph.passes import Pass, fold_params, optimise, passes_for
from samgraph.passes.cut import cut
from samgraph.passes.fold_params import Folded
from samgraph.passes.pipeline import ALL, FOLD, Watch
from samgraph.runtime.ahead import Ahead
from samgraph.runtime.cache import GraphCache, cache_key, default_cache_dir, most_bytes
from samgraph.runtime.devices import Choice, choose
from samgraph.runtime.options import CompileOptions
from samgraph.runtime.profiles import FUSED, Profile

_SHAPE = attrgetter("shape")


class CompiledGraph:
    """A graph ready to run. `run` may be called from several threads at once."""

    def __init__(
        self, source: Graph, weights: Mapping[str, Array], program: Program, session: "Session"
    ) -> None:
        self.source, self._program, self._session = source, program, session
        self._weights, self._setting = weights, threading.Lock()
        self._names = tuple(value.name for value in source.inputs)
        self._dtypes = tuple(value.type.dtype for value in source.inputs)
        self._buffers = session.buffers
        self._fitting: set[tuple[tuple[int, ...], ...]] = set()  # shapes already checked

    def __repr__(self) -> str:
        return f"<compiled {self.source.name}: {self.reason}>"

    @property
    def reason(self) -> str:
        """The engine and device it runs on, and why, in one sentence."""
        return self._session.reason

    @property
    def optimised(self) -> Graph:
        """The graph that its engine compiled; computed on access."""
        return self._session.optimise(self.source)

    def run(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Any]:
        """Named inputs to named outputs: buffers of the engine, owned by the caller.

        Host arrays are uploaded. On the CPU buffers are arrays; elsewhere
        `session.buffers.download` gives an array.
        """
        given: dict[str, Any] = {**inputs, **named} if inputs else named
        self._check(given)
        return self._program.run(given)

    def run_numpy(
        self, inputs: Mapping[str, Any] | None = None, /, **named: Any
    ) -> dict[str, Array]:
        """As `run`, with outputs as host arrays whatever the engine."""
        download = self._session.buffers.download
        return {name: download(buffer) for name, buffer in self.run(inputs, **named).items()}

    def set_param(self, name: str, array: Array) -> None:
        """Replace one weight of this compiled graph by a copy of `array`; see `set_params`."""
        self.set_params({name: array})

    def set_params(self, arrays: Mapping[str, Array]) -> None:
        """Replace weights of this compiled graph by copies of `arrays`, under their own names.

        The next run uses them; runs in progress finish with the old weights. Costs a compilation,
        since a pass may have folded a weight into others; nothing is cached on disk.
        """
        for name in arrays:
            if all(value.name != name for value in self.source.params):
                raise _no_param(self.source, name)
        copies = {name: np.array(array, order="C") for name, array in arrays.items()}
        with self._setting:
            weights = _check_weights(self.source, {**self._weights, **copies})
            self._program = self._session.build(self.source, weights)
            self._weights = weights

    def memory(self) -> MemoryUsage:
        """The memory of the compiled graph, in bytes."""
        return self._program.memory()

    def _check(self, given: dict[str, Any]) -> None:
        """Check names, dtypes and shapes; upload host arrays."""
        if given.keys() != set(self._names):
            raise _wrong_names(self.source, given)
        values = list(map(given.__getitem__, self._names))
        if not self._buffers.fits(values, self._dtypes):
            values = self._uploaded(values)
            given.update(zip(self._names, values, strict=True))
        shapes = tuple(map(_SHAPE, values))
        if shapes not in self._fitting:
            bindings = bind(self.source.inputs, dict(zip(self._names, shapes, strict=True)))
            check_lengths(self.source, bindings)
            self._fitting.add(shapes)

    def _uploaded(self, values: list[Any]) -> list[Any]:
        """The values with host arrays uploaded; raises for values of the wrong type."""
        found, buffers = [], self._buffers
        for name, value, dtype in zip(self._names, values, self._dtypes, strict=True):
            on_host = not buffers.owns(value)
            if on_host and not isinstance(value, np.ndarray):
                raise _wrong_type(self.source, name, value)
            actual = value.dtype == numpy_dtype(dtype) if on_host else buffers.dtype(value) == dtype
            if not actual:
                raise _wrong_type(self.source, name, value)
            found.append(buffers.upload(value) if on_host else value)
        return found


class Session:
    """Compiles graphs for one device with one set of options.

    Attributes:
        options: How graphs are compiled.
        buffers: The operations on inputs and outputs of its graphs.
        attention_tokens: The number of memory tokens that saturates the device; None: no limit.
        objects_at_once: The largest batch of objects that pays.
        batch_limits: Batches of predictors, where the device had no memory for larger ones.
        ahead: The graph that is being restored already, and where the next start's is noted.
    """

    def __init__(self, device: DeviceLike = "auto", options: CompileOptions | None = None) -> None:
        self.options = options or CompileOptions()
        self._folder = default_cache_dir(self.options.cache_dir)
        memory = self._folder / "machine.json" if self.options.cache else None
        self._choice = choose(device, self.options, memory)
        engine = self._choice.engine
        self.buffers: Buffers = engine.buffers
        self.attention_tokens = engine.attention_tokens
        self.objects_at_once = engine.objects_at_once
        self.batch_limits: dict[str, int] = {}
        self.ahead = Ahead()
        self._passes, self._folds = _passes_of(self.options.chosen_profile, self._choice)

    @property
    def reason(self) -> str:
        """The choice of engine, device and precision, and why, in one sentence."""
        profile = self.options.chosen_profile
        other = "" if profile == FUSED else f"; profile {profile.name}"
        if self.options.approximation is not None:
            other += f"; approximation {self.options.approximation}"
        return f"{self._choice.reason}{other}"

    @property
    def device(self) -> Device:
        """Where graphs run."""
        return self._choice.device

    @property
    def engine(self) -> Engine:
        """The engine that compiles."""
        return self._choice.engine

    @property
    def precision(self) -> Precision:
        """The precision that was chosen."""
        return self._choice.options.precision

    @property
    def engine_options(self) -> EngineOptions:
        """The precision and threads that the engine compiles with."""
        return self._choice.options

    @property
    def pass_names(self) -> tuple[str, ...]:
        """The passes that run, in order."""
        return (*(step.__name__ for step in self._passes), *((FOLD,) if self._folds else ()))

    def precision_of(self, node: Node) -> Precision:
        """The precision in which a node of an optimised graph is computed."""
        return self.engine.precision_of(node, self._choice.options.precision)

    def optimise(self, graph: Graph, watch: Watch | None = None) -> Graph:
        """The graph that the engine compiles; `watch` is called with it after each pass."""
        return self._optimise(graph, watch).graph

    def _optimise(self, graph: Graph, watch: Watch | None = None) -> Folded:
        """The graph after this session's passes, with what makes its folded params."""
        optimised = optimise(graph, self._passes, watch)
        if not self._folds:
            return Folded(optimised, None)
        folded = fold_params(optimised)
        verify(folded.graph)
        if folded.weights is not None:
            verify(folded.weights)
        if watch is not None:
            watch(FOLD, folded.graph)
        return folded

    def compile(self, graph: Graph, weights: Mapping[str, Array] | None = None) -> CompiledGraph:
        """Optimise and compile, or restore from the cache.

        With a profile of split stages, a graph with marks is compiled in stages (`SplitGraph`).
        """
        if self.options.chosen_profile.stages == "split" and graph.marks:
            from samgraph.runtime.split import SplitGraph

            stages = [self._compile(stage, weights or {}) for stage in cut(graph)]
            return SplitGraph(graph, weights or {}, stages, self)
        return self._compile(graph, weights or {})

    def _compile(self, graph: Graph, weights: Mapping[str, Array]) -> CompiledGraph:
        bound = _check_weights(graph, weights)
        engine = self._choice.engine
        if not self.options.cache or not engine.caches_programs:
            return CompiledGraph(graph, bound, self.build(graph, bound), self)
        cache = GraphCache(self._folder, most_bytes(bound))
        key = cache_key(graph, bound, engine.name, engine.version(), str(self._settings()))
        program = self.ahead.take(graph.name, key, self.engine_options)
        if program is None:
            program = self._restore(cache.load(key))
        if program is None:
            program = self.build(graph, bound)
            exported = program.export()
            if exported is not None:
                cache.store(key, exported)
        weight_bytes = sum(array.nbytes for array in bound.values())
        self.ahead.note(graph.name, key, self.engine_options, weight_bytes)
        return CompiledGraph(graph, bound, program, self)

    def _settings(self) -> tuple[object, ...]:
        """The settings of this session that a compiled graph depends on."""
        return (self._choice.options, self.options.chosen_profile)

    def build(self, graph: Graph, weights: Mapping[str, Array]) -> Program:
        """Compile a graph with checked weights: passes, folding, and the engine."""
        engine, folded = self._choice.engine, self._optimise(graph)
        _check_legal(folded.graph, engine, self._choice.options.precision)
        return engine.compile(folded.graph, folded.bind(weights), self._choice.options)

    def _restore(self, data: memoryview | None) -> Program | None:
        """The cached program, if the engine can restore it."""
        if data is None:
            return None
        try:
            return self._choice.engine.restore(data, self._choice.options)
        except EngineError as error:
            text = f"a compiled graph of the cache cannot be used ({error.got}); compiling anew"
            warnings.warn(text, SamgraphWarning, stacklevel=3)
            return None


def _passes_of(profile: Profile, choice: Choice) -> tuple[tuple[Pass, ...], bool]:
    """The passes that run, and whether params are folded after them."""
    engine, precision = choice.engine, choice.options.precision
    try:
        passes = passes_for(engine.passes, precision, without=profile.without, also=profile.also)
    except OptionError as error:
        text = f"profile `{profile.name}` does not fit engine `{engine.name}`: {error.what}"
        raise OptionError(text, expected=error.expected) from error
    off = {FOLD, ALL} & set(profile.without) and FOLD not in profile.also
    return passes, engine.folds_params and not off


def _check_weights(graph: Graph, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights this graph reads; raises for missing weights and wrong types."""
    missing = [value.name for value in graph.params if value.name not in weights]
    if missing:
        shown = ", ".join(missing[:3])
        raise CheckpointError(
            f"graph `{graph.name}` needs {len(missing)} weights that were not given", got=shown
        )
    bound: dict[str, Array] = {}
    for value in graph.params:
        array = np.asarray(weights[value.name], order="C")
        if type_of(array) != value.type:
            raise CheckpointError(
                f"weight `{value.name}` has the wrong type",
                got=type_of(array),
                expected=value.type,
            )
        bound[value.name] = array
    return bound


_MOVES = frozenset(("gather", "reshape", "slice", "transpose"))
_PRODUCTS = frozenset(("attention", "cast", "conv2d", "linear", "matmul"))  # in bf16 mode


def _check_legal(graph: Graph, engine: Engine, precision: Precision) -> None:
    """Raise `EngineError` for ops and dtypes that the engine does not support."""
    ops = _MOVES | _PRODUCTS if precision == "bf16" else _MOVES
    params = graph.params if precision == "bf16" else ()
    kept = {value for value in (*graph.inputs, *params) if value.type.dtype in engine.storage}
    kept |= {n.result for n in graph if n.result.type.dtype in engine.storage and n.op in ops}
    for value in (*graph.inputs, *graph.params, *(node.result for node in graph)):
        if value.type.dtype not in engine.dtypes and value not in kept:
            raise EngineError(
                f"engine `{engine.name}` has no {value.type.dtype}",
                got=f"%{value.name}: {value.type}",
                expected=", ".join(sorted(engine.dtypes)),
            )
    for node in graph:
        if node.op not in engine.ops:
            raise EngineError(f"engine `{engine.name}` has no op `{node.op}`", got=show(node))


def _no_param(graph: Graph, name: str) -> CheckpointError:
    near = get_close_matches(name, [value.name for value in graph.params], n=1)
    return CheckpointError(
        f"graph `{graph.name}` has no param `{name}`",
        hint=f"did you mean `{near[0]}`?" if near else None,
    )


def _wrong_names(graph: Graph, given: Mapping[str, Array]) -> InputError:
    wanted = {value.name for value in graph.inputs}
    missing, extra = sorted(wanted - given.keys()), sorted(given.keys() - wanted)
    parts = [f"missing `{name}`" for name in missing] + [f"unknown `{name}`" for name in extra]
    inputs = ", ".join(f"{value.name}: {value.type}" for value in graph.inputs)
    return InputError(
        f"the inputs of graph `{graph.name}` do not fit", got=", ".join(parts), expected=inputs
    )


def _wrong_type(graph: Graph, name: str, array: Any) -> InputError:
    expected = graph.input(name).type
    if not hasattr(array, "dtype") or isinstance(array, np.generic):
        return InputError(
            f"input `{name}` is not a numpy array", got=type(array).__name__, expected=expected
        )
    hint = f"{name}.astype(numpy.{numpy_dtype(expected.dtype)})"
    return InputError(
        f"input `{name}` has the wrong dtype", got=array.dtype, expected=expected, hint=hint
    )
