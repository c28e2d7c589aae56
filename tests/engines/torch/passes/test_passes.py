"""Each pass of the torch engine: a golden text, the same meaning on random graphs, seen faults."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from samgraph.errors import GraphError
from samgraph.graph import Graph, Node, Value, parse_graph, print_graph
from samgraph.graph.evaluation import evaluate_graph
from samgraph.passes import PASSES, Pass, optimise
from samgraph.passes.rewriter import Rewriter
from tests.engines.torch.passes.cases import CASES, Case, Sizes
from tests.graph.random_graphs import arrays_for
from tests.passes.test_meaning import difference
from tests.tolerances import TORCH_PASS

torch = pytest.importorskip("torch")

LENGTHS = {"N": 2, "P": 6, "F": 3, "Q": 2}
PLACES = [(step, make) for step, makes in CASES.items() for make in makes]
NAMES = [make.__name__ for _, make in PLACES]

Spoil = Callable[[Rewriter, Node], Value]


def pipeline() -> list[Pass]:
    """All passes of the engine on a GPU, in order."""
    from samgraph.engines import Device
    from samgraph.engines.torch.engine import TorchEngine

    return [step.run for step in TorchEngine(Device("cpu"), fuses=True).passes]


def own_passes() -> set[str]:
    return {step.__name__ for step in pipeline()} - PASSES.keys()


def before_and_pass(step: str, graph: Graph) -> tuple[Graph, Pass]:
    """What a pass sees of a graph in the engine's pipeline, and the pass."""
    passes = pipeline()
    place = [each.__name__ for each in passes].index(step)
    return optimise(graph, passes[:place]), passes[place]


def changed_by(before: Graph, after: Graph) -> float:
    """How much the numpy reference finds two graphs to differ, over two lengths of a batch."""
    worst = 0.0
    for batch in (1, 2):
        sizes = {**LENGTHS, "N": batch}
        inputs, weights = arrays_for(before, sizes)
        inputs = {
            name: np.abs(array) % 2 if array.dtype == np.int64 else array
            for name, array in inputs.items()
        }
        first, second = (
            evaluate_graph(graph, {**weights, **inputs}, sizes) for graph in (before, after)
        )
        worst = max(worst, difference(first, second))
    return worst


SIZES = st.builds(
    Sizes,
    channels=st.sampled_from((16, 24, 32)),
    heads=st.sampled_from((1, 2, 4)),
    tokens=st.integers(2, 4),
    grid=st.sampled_from((4, 6)),
    window=st.sampled_from((2, 4)),
    eps=st.sampled_from((1e-6, 1e-5)),
)


def test_every_pass_has_a_case_and_a_fault() -> None:
    own = own_passes()

    assert set(CASES) == own, f"golden graph and property test: {own ^ set(CASES)}"
    faulty = {step for step, _, _ in FAULTS.values()}
    assert faulty == own, f"planted fault: {own ^ faulty}"


@pytest.mark.parametrize(("step", "make"), PLACES, ids=NAMES)
def test_a_pass_does_what_its_golden_file_shows(
    step: str, make: Case, golden_text: Callable[[str, str], None]
) -> None:
    before, run = before_and_pass(step, make(Sizes()))

    after = optimise(before, [run])

    golden_text(f"torch_passes/{make.__name__}", f"{before}\n\n=> {step}\n\n{after}")
    assert parse_graph(print_graph(after, data=True)) == after
    assert after != before
    assert optimise(after, [run]) == after or step == "defer_biases"  # whose ops it reads again


@pytest.mark.parametrize(("step", "make"), PLACES, ids=NAMES)
def test_a_pass_keeps_the_meaning(step: str, make: Case) -> None:
    changed = []

    @settings(max_examples=15, phases=[Phase.generate], deadline=None)
    @given(SIZES)
    def check(sizes: Sizes) -> None:
        before, run = before_and_pass(step, make(sizes))
        after = optimise(before, [run])

        assert changed_by(before, after) <= TORCH_PASS
        changed.append(after != before)

    check()
    assert any(changed)


def _without(place: int) -> Spoil:
    """A node that reads zeros in place of one of its inputs."""

    def spoil(rewriter: Rewriter, node: Node) -> Value:
        inputs = [rewriter.new(value) for value in node.inputs]
        inputs[place] = rewriter.emit("sub", inputs[place], inputs[place])
        return rewriter.emit(node.op, *inputs, exact=node.exact, **node.attributes)

    return spoil


def _given(**changed: Any) -> Spoil:
    """A node with other attributes."""

    def spoil(rewriter: Rewriter, node: Node) -> Value:
        inputs = [rewriter.new(value) for value in node.inputs]
        return rewriter.emit(node.op, *inputs, exact=node.exact, **{**node.attributes, **changed})

    return spoil


def _exchanged(rewriter: Rewriter, node: Node) -> Value:
    """A node whose inputs come in the opposite order."""
    inputs = [rewriter.new(value) for value in node.inputs[::-1]]
    return rewriter.emit(node.op, *inputs, exact=node.exact, **node.attributes)


def _from_the_start(rewriter: Rewriter, node: Node) -> Value:
    """A slice that takes as many, but the first."""
    starts, ends = node.attributes["starts"], node.attributes["ends"]
    bounds = {"starts": (0,) * len(starts), "ends": node.result.type.shape}  # type: ignore[arg-type]  # a tuple
    return _given(**bounds)(rewriter, node) if any(starts) else _given(ends=ends)(rewriter, node)  # type: ignore[arg-type]  # a tuple


# What is wrong: the pass, the new nodes of which op, and how they are changed.
FAULTS: dict[str, tuple[str, str, Spoil]] = {
    "keys without their time": ("read_bank", "bank_keys", _without(3)),
    "values without pointers": ("read_bank", "bank_values", _without(2)),
    "padding has no bias as key": ("attend_windows", "window_attention", _without(3)),
    "another scale in windows": ("attend_windows", "window_attention", _given(scale=0.1)),
    "queries are not pooled": ("attend_windows", "fused_linear", _without(2)),
    "scale of tokens forgotten": ("attend_image", "attention", _given(scale=3.0)),
    "values of tokens forgotten": ("attend_image", "linear", _without(1)),
    "scores of the bias forgotten": ("attend_tokens", "image_to_tokens", _without(3)),
    "coarse map not added": ("fuse_mask_upscaling", "upscale_masks", _without(3)),
    "another eps in masks": ("fuse_mask_upscaling", "upscale_masks", _given(eps=1.0)),
    "no activation between": ("group_mlps", "grouped_linear", _given(activation="none")),
    "another slice": ("join_slices", "slice", _from_the_start),
    "norm not shifted": ("fuse_convolutions", "conv_norm", _without(4)),
    "patches without positions": ("fuse_convolutions", "patch_embedding", _without(3)),
    "mask not shifted": ("fuse_convolutions", "enlarge_mask", _given(shift=0.0)),
    "bias of a map forgotten": ("maps_channels_last", "linear", _without(2)),
    "columns exchanged": ("merge_columns", "concat", _exchanged),
    "another angle": ("fuse_rotations", "fused_linear", _given(theta=3.0)),
    "residual not added": ("fuse_linears", "fused_linear", _without(-1)),
    "activation forgotten": ("fuse_mlps", "fused_mlp", _given(activation="relu")),
    "stream without its bias": ("defer_biases", "offset_norm", _without(1)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_pass_is_seen(name: str) -> None:
    step, op, spoil = FAULTS[name]
    seen = []
    for make in CASES[step]:
        before, run = before_and_pass(step, make(Sizes()))
        old = {node.key for node in before}

        def faulty(graph: Graph, run: Pass = run, old: set[Any] = old) -> Graph:
            after = run(graph)
            rewriter = Rewriter(after)
            for node in after:
                if node.op == op and node.key not in old:
                    rewriter.replace(node.result, spoil(rewriter, node))
                else:
                    rewriter.keep(node)
            return rewriter.finish()

        try:
            seen.append(changed_by(before, optimise(before, [faulty])) > TORCH_PASS)
        except GraphError:  # the verifier saw it
            seen.append(True)

    assert any(seen)
