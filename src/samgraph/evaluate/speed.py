"""Compile and run times of graphs on this machine, by profile."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from samgraph.graph import Array, Graph
from samgraph.graph.dims import evaluate
from samgraph.graph.types import numpy_dtype
from samgraph.models.sam2.model import FOR_ONE, Sam2Model
from samgraph.models.sam2.statistics import TYPICAL
from samgraph.runtime import CompiledGraph
from samgraph.runtime.split import SplitGraph


@dataclass(frozen=True, slots=True)
class Timing:
    """One graph of one model: seconds to compile it, and the median of the seconds of its runs."""

    graph: str
    profile: str
    compile_seconds: float
    run_seconds: float
    runs: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    graph: str
    profile: str
    compile_seconds: float
    run: Callable[[], object]


def time_graphs(
    models: Mapping[str, Sam2Model], names: Sequence[str], *, runs: int = 5
) -> list[Timing]:
    """A timing for each graph of each model, by the name of its profile.

    Sizes are those of `TYPICAL`: one image, one prompt or object, a full memory. All graphs are
    compiled first, one after another, and run once; then every round runs each of them once, so
    that other load on the machine affects all alike. Profiles after the first show only graphs
    that they cut into stages or compile from another graph.
    """
    candidates: list[_Candidate] = []
    seen: dict[str, Graph] = {}
    for profile, model in models.items():
        for name in names:
            start = time.perf_counter()
            compiled = model.compiled(name, for_one=name in FOR_ONE)
            seconds = time.perf_counter() - start
            if _is_new(seen, name, compiled):
                inputs = typical_inputs(model.graph(name))
                run = _runner(compiled, inputs)
                run()
                candidates.append(_Candidate(name, profile, seconds, run))
    spans: list[list[float]] = [[] for _ in candidates]
    for _ in range(runs):
        for candidate, found in zip(candidates, spans, strict=True):
            start = time.perf_counter()
            candidate.run()
            found.append(time.perf_counter() - start)
    return [
        Timing(c.graph, c.profile, c.compile_seconds, median(found), runs)
        for c, found in zip(candidates, spans, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class FrameTiming:
    """A tracked frame with an approximation: the sum of the medians of its graphs, in seconds."""

    approximation: str
    seconds: float


def time_frames(
    models: Mapping[str, Sam2Model], names: Sequence[str], *, runs: int = 5
) -> list[FrameTiming]:
    """A timing for each model, by the name of its approximation; all runs are interleaved.

    An approximation that reads fewer remembered frames is given fewer.
    """
    runners = []
    for model in models.values():
        sizes = typical_sizes(model)
        for name in names:
            compiled = model.compiled(name, for_one=name in FOR_ONE)
            run = _runner(compiled, typical_inputs(model.graph(name), sizes))
            run()
            runners.append(run)
    spans: list[list[float]] = [[] for _ in runners]
    for _ in range(runs):
        for run, found in zip(runners, spans, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    medians = [median(found) for found in spans]
    step = len(names)
    return [
        FrameTiming(name, sum(medians[step * i : step * (i + 1)])) for i, name in enumerate(models)
    ]


def typical_sizes(model: Sam2Model) -> Mapping[str, int]:
    """`TYPICAL`, with as many remembered frames as the model's approximation reads."""
    approximation = model.session.options.chosen_approximation
    tracked = approximation.tracked_frames if approximation else None
    return TYPICAL if tracked is None else {**TYPICAL, "F": 1 + tracked}


def typical_inputs(graph: Graph, sizes: Mapping[str, int] = TYPICAL) -> dict[str, Array]:
    """An array for every input: normally distributed floats; 1 for counts and flags."""
    rng = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for value in graph.inputs:
        shape = [evaluate(dim, sizes) for dim in value.type.shape]
        dtype = numpy_dtype(value.type.dtype)
        numbers = rng.standard_normal(shape) if value.type.dtype == "f32" else np.ones(shape)
        made[value.name] = numbers.astype(dtype)
    return made


def _is_new(seen: dict[str, Graph], name: str, compiled: CompiledGraph) -> bool:
    """Whether the optimised graph differs from those of earlier profiles; stages always count."""
    if isinstance(compiled, SplitGraph):
        return True
    optimised = compiled.optimised
    return seen.setdefault(name, optimised) is optimised or seen[name] != optimised


def _runner(compiled: CompiledGraph, inputs: Mapping[str, Array]) -> Callable[[], object]:
    return lambda: compiled.run(inputs)
