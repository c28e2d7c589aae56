"""Products of a compiled graph, each timed by itself, beside the machine's own rate.

The graph is the one that the engine compiles; equal nodes are timed once. What is not a product
(norms, sums, moving data, and what fusing saves or costs) is the rest of the whole graph's time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from samgraph.graph import Array, Builder, Graph, Node, Tensor
from samgraph.graph.builder import emit
from samgraph.graph.registry import find_op
from samgraph.graph.types import TensorType, numpy_dtype
from samgraph.models.sam2.model import FOR_ONE, Sam2Model
from samgraph.models.sam2.statistics import TYPICAL
from samgraph.passes.specialise import specialise
from samgraph.runtime import Session

SIDE = 1024  # of the square matrices whose product is the machine's rate


@dataclass(frozen=True, slots=True)
class OpTiming:
    """Equal nodes of a graph: how many, and of each the work, bytes moved and median seconds."""

    op: str
    inputs: str
    count: int
    multiply_adds: int
    bytes: int
    seconds: float

    @property
    def gflops(self) -> float:
        """Billions of floating-point operations per second; a multiply-add is two."""
        return 2e-9 * self.multiply_adds / self.seconds


def profile_ops(model: Sam2Model, name: str, *, runs: int = 3) -> list[OpTiming]:
    """The products of a graph at typical sizes, those that take most time first."""
    session, graph = model.session_for(name), model.graph(name)
    if name in FOR_ONE:
        graph = specialise(graph, {FOR_ONE[name][0]: 1})
    optimised = session.optimise(graph)
    sizes = {symbol: TYPICAL[symbol] for symbol in optimised.symbols}
    fixed = specialise(optimised, sizes) if sizes else optimised
    params = {value.name for value in fixed.params}
    alike: dict[tuple[object, ...], list[Node]] = {}
    for node in fixed:
        if find_op(node.op).work is not None:
            types = tuple((value.type, value.name in params) for value in node.inputs)
            alike.setdefault((node.op, types, str(node.attributes)), []).append(node)
    found = [_time_node(session, nodes[0], params, len(nodes), runs) for nodes in alike.values()]
    return sorted(found, key=lambda timing: -timing.seconds * timing.count)


def peak_gflops(session: Session, runs: int = 3) -> float:
    """The rate of a large matrix product on the same engine, precision and threads."""
    builder = Builder("peak")
    x, weight = (
        builder.input("x", f"f32[{SIDE},{SIDE}]"),
        builder.param("weight", f"f32[{SIDE},{SIDE}]"),
    )
    graph = session.optimise(builder.finish(y=emit("linear", x, weight)))
    best = min(_spans(_runner(session, graph), runs + 2))
    return 2e-9 * SIDE**3 / best


def _time_node(session: Session, node: Node, params: set[str], count: int, runs: int) -> OpTiming:
    builder, inputs = Builder("single"), list[Tensor]()
    for number, value in enumerate(node.inputs):
        make = builder.param if value.name in params else builder.input
        inputs.append(make(f"x{number}", value.type))
    result = emit(node.op, *inputs, **node.attributes)
    if result.dtype == "bf16":  # no output may be
        result = emit("cast", result, dtype="f32")
    seconds = median(_spans(_runner(session, builder.finish(y=result)), runs))
    types = [value.type for value in node.inputs]
    work = find_op(node.op).work
    adds = work(node.result.type, *types, **node.attributes) if work else 0
    shown = ", ".join(map(str, types))
    moved = sum(map(_bytes, (*types, node.result.type)))
    return OpTiming(node.op, shown, count, int(str(adds)), moved, seconds)


def _runner(session: Session, graph: Graph) -> Callable[[], object]:
    """Runs a graph as it is on the session's engine, with random weights and inputs."""
    engine, buffers = session.engine, session.engine.buffers
    weights = {value.name: _random(value.type) for value in graph.params}
    program = engine.compile(graph, weights, session.engine_options)
    inputs = {value.name: buffers.upload(_random(value.type)) for value in graph.inputs}

    def run() -> None:
        for output in program.run(inputs).values():
            buffers.download(output[:1])  # waits for a device

    return run


def _random(type: TensorType) -> Array:
    numbers = np.random.default_rng(0).standard_normal(type.lengths, np.float32)
    return numbers.astype(numpy_dtype(type.dtype))


def _spans(run: Callable[[], object], runs: int) -> list[float]:
    run()
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


def _bytes(type: TensorType) -> int:
    return int(np.prod(type.lengths, dtype=np.int64)) * numpy_dtype(type.dtype).itemsize
