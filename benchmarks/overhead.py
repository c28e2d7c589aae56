"""What our layer costs on top of OpenVINO, for a graph of 100 small ops.

    python benchmarks/overhead.py

The same model, built by our `build` from the same optimised graph, is compiled and run once
through a session and once by calling OpenVINO directly with the same settings and arrays. Ours
includes all checks, passes, verification and folding; tracing is not counted. The two take turns,
and medians of processor time are compared: on a shared machine the wall clock shows the others,
and OpenVINO's one thread is that of the caller.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np

from samgraph import ops
from samgraph.engines.openvino.engine import OpenVinoEngine, build
from samgraph.graph import Builder, Graph
from samgraph.graph.types import Array
from samgraph.passes import fold_params, optimise, passes_for
from samgraph.runtime import CompileOptions, Session

import openvino  # isort: skip  (after our engine, which keeps it from reporting)

BLOCKS, TOKENS, WIDTH = 20, 64, 64
HINTS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "INFERENCE_NUM_THREADS": 1,
    "NUM_STREAMS": 1,
    "EXECUTION_MODE_HINT": "ACCURACY",
}


def hundred_ops() -> Graph:
    """Twenty blocks of five ops over f32[64,64]: norm, linear, sigmoid, product, sum."""
    builder = Builder("hundred")
    x = builder.input("x", f"f32[M,{WIDTH}]")
    for number in range(BLOCKS):
        at = builder.scope() / "blocks" / number
        scale, shift = at.weight("scale", WIDTH), at.weight("shift", WIDTH)
        normal = ops.layer_norm(x, scale, shift, eps=1e-6)
        hidden = ops.linear(normal, at.weight("weight", WIDTH, WIDTH), at.weight("bias", WIDTH))
        x = x + ops.sin(hidden) * normal
    return builder.finish(y=x)


def weights_of(graph: Graph) -> dict[str, Array]:
    """Small random weights."""
    rng = np.random.default_rng(0)
    shapes = {value.name: [int(str(dim)) for dim in value.type.shape] for value in graph.params}
    return {name: rng.standard_normal(s).astype(np.float32) / 8 for name, s in shapes.items()}


def take_turns(
    ours: Callable[[], object], theirs: Callable[[], object], times: int
) -> tuple[float, float]:
    """The median processor seconds of each, run one after the other."""
    spans: tuple[list[float], list[float]] = ([], [])
    for turn in range(times):
        pair = list(zip((ours, theirs), spans, strict=True))
        for call, kept in pair if turn % 2 else reversed(pair):
            start = time.thread_time()
            call()
            kept.append(time.thread_time() - start)
    return statistics.median(spans[0]), statistics.median(spans[1])


def report(what: str, ours: float, theirs: float) -> float:
    """One line; gives the overhead in percent."""
    percent = 100 * (ours / theirs - 1)
    print(f"{what}: ours {1e3 * ours:.3f} ms, OpenVINO {1e3 * theirs:.3f} ms, {percent:+.1f}%")
    return percent


def main(runs: int = 2000, compilations: int = 20) -> tuple[float, float]:
    """Run and compile overhead, in percent."""
    graph = hundred_ops()
    weights = weights_of(graph)
    session = Session("cpu", CompileOptions(threads=1, cache=False))
    folded = fold_params(optimise(graph, passes_for(OpenVinoEngine().passes)))
    optimised, bound = folded.graph, folded.bind(weights)
    core = openvino.Core()
    print(f"{len(graph)} nodes, {len(optimised)} after the passes, {OpenVinoEngine().version()}")

    def compile_directly() -> openvino.CompiledModel:
        return core.compile_model(build(optimised, bound), "CPU", HINTS)

    compiled = session.compile(graph, weights)
    request = compile_directly().create_infer_request()
    x = np.random.default_rng(1).standard_normal((TOKENS, WIDTH)).astype(np.float32)
    same = np.array_equal(compiled.run(x=x)["y"], request.infer([x])[0])
    print(f"same bits: {same}")

    def run_directly() -> Array:
        result: Array = request.infer([x], share_inputs=True, share_outputs=True)[0].copy()
        return result

    running = report("run", *take_turns(lambda: compiled.run(x=x), run_directly, runs))
    compiling = report(
        "compile",
        *take_turns(lambda: session.compile(graph, weights), compile_directly, compilations),
    )
    return running, compiling


if __name__ == "__main__":
    main()
