"""A tour of the graph core: build, print, optimise, compile, run and compare five ops.

Run it with `python docs/tour.py`; the tests run it too. Read it from top to bottom.
"""

import numpy as np

from samgraph import ops
from samgraph.engines import engine_names, find_engine
from samgraph.errors import EngineError, ShapeError
from samgraph.graph import Builder, Graph, Scope, Tensor, parse_graph, print_graph, to_svg
from samgraph.graph.types import Array
from samgraph.runtime import CompileOptions, Session

# 1. A model is a function of a scope and traced tensors. The scope is a path in the checkpoint:
#    `at / "mlp"` reads the weights `mlp.0.weight`, `mlp.0.bias`, and so on. No numbers flow yet:
#    running the function once records its ops.


def block(at: Scope, x: Tensor) -> Tensor:
    """A residual block: x + mlp(norm(x)), [M, 8] -> [M, 8]."""
    norm = at / "norm"
    normal = ops.layer_norm(x, norm.weight("weight", 8), norm.weight("bias", 8), eps=1e-6)
    wide, narrow = at / "mlp" / 0, at / "mlp" / 1
    hidden = ops.gelu(ops.linear(normal, wide.weight("weight", 32, 8), wide.weight("bias", 32)))
    return x + ops.linear(hidden, narrow.weight("weight", 8, 32), narrow.weight("bias", 8))


def build() -> Graph:
    """The graph of one block, for any number M of tokens."""
    builder = Builder("block")
    x = builder.input("x", "f32[M,8]")
    return builder.finish(y=block(builder.scope() / "blocks" / 0, x))


# 2. A graph is typed, immutable, and printed as text that reads back to an equal graph.


def look(graph: Graph) -> None:
    """Print a graph, read it back, and draw it."""
    print(graph, end="\n\n")
    again = parse_graph(print_graph(graph, data=True))
    print(f"the text reads back to an equal graph: {again == graph}")
    print(f"as a picture it is {len(to_svg(graph))} letters of SVG\n")


# 3. A mistake is reported on the line where it is written, with both shapes.


def make_a_mistake() -> None:
    """Add tensors that do not fit."""
    builder = Builder("mistake")
    x, y = builder.input("x", "f32[M,8]"), builder.input("y", "f32[M,7]")
    try:
        x + y
    except ShapeError as error:
        print(f"{error}\n{error.__notes__[0].split('/')[-1]}\n")


# 4. Passes rewrite the graph, one after another; the graph is checked after each. Here the
#    activation is fused into the linear layer before it.


def rewrite(graph: Graph) -> Graph:
    """Run the passes of the CPU engine, printing the graph after each that changed it."""
    seen = [graph]

    def tell(name: str, after: Graph) -> None:
        print(f"after {name}: " + ("nothing to do" if after == seen[-1] else f"\n{after}"))
        seen.append(after)

    optimised = Session("cpu", CompileOptions(cache=False)).optimise(graph, watch=tell)
    print()
    return optimised


# 5. A session compiles the graph with its weights for an engine. The numpy reference is slow and
#    defines the right result: every other engine is compared with it.


def random_weights(graph: Graph) -> dict[str, Array]:
    """Random values for all weights."""
    rng = np.random.default_rng(0)
    shapes = {value.name: value.type.lengths for value in graph.params}
    return {name: rng.standard_normal(s).astype(np.float32) / 3 for name, s in shapes.items()}


def run_everywhere(graph: Graph) -> float:
    """Run on every engine that is installed; returns the largest difference to the reference."""
    weights, worst = random_weights(graph), 0.0
    expected: dict[int, Array] = {}
    for name in engine_names():
        try:
            find_engine(name)
        except EngineError as error:
            print(f"{name}: {error.what}")
            continue
        session = Session("cpu", CompileOptions(engine=name, threads=1, cache=False))
        compiled = session.compile(graph, weights)
        for tokens in (5, 1, 100):  # one compiled graph serves every length
            x = np.random.default_rng(tokens).standard_normal((tokens, 8)).astype(np.float32)
            y = compiled.run_numpy(x=x)["y"]
            want = expected.setdefault(tokens, y)
            worst = max(worst, float(np.abs(y - want).max()))
        print(f"{compiled.reason}: within {worst:.1e} of the reference")
    return worst


def main() -> float:
    """The whole tour; returns the largest difference between engines."""
    graph = build()
    look(graph)
    make_a_mistake()
    rewrite(graph)
    return run_everywhere(graph)


if __name__ == "__main__":
    main()
