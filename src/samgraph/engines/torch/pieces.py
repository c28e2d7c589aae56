"""Cutting a run into pieces, so that training keeps only what goes from one piece to the next.

What is computed inside a piece is forgotten, and computed again when the gradients need it: about
a third more work for a fraction of the memory. There are about as many pieces as each has nodes,
and each cut is made where the least is alive, such as between two blocks of a network.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from samgraph.engines.torch.plan import Step
from samgraph.graph.dims import evaluate, product


@dataclass(frozen=True, slots=True)
class Piece:
    """Steps in a row; the names of what they read from before, and of what is read after."""

    steps: tuple[Step, ...]
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    done: tuple[str, ...]


def cut(
    steps: Sequence[Step], outputs: Collection[str], bindings: Mapping[str, int]
) -> list[Piece]:
    """The pieces in the order they run."""
    cuts = [0, *_cuts(steps, bindings), len(steps)]
    return [_piece(tuple(steps[start:end]), steps[end:], outputs) for start, end in pairwise(cuts)]


def _piece(steps: tuple[Step, ...], later: Sequence[Step], outputs: Collection[str]) -> Piece:
    made = [step.node.result.name for step in steps]
    read = dict.fromkeys(value.name for step in steps for value in step.node.inputs)
    read_later = {value.name for step in later for value in step.node.inputs} | set(outputs)
    reads = tuple(name for name in read if name not in made)
    done = tuple(name for step in steps for name in step.done if name in reads)
    return Piece(steps, reads, tuple(name for name in made if name in read_later), done)


def _cuts(steps: Sequence[Step], bindings: Mapping[str, int]) -> list[int]:
    """The number of the first step of each piece but the first."""
    count = max(1, math.isqrt(len(steps)))
    alive = _alive(steps, bindings)
    edges = [round((index + 0.5) * len(steps) / count) for index in range(count)]
    return [min(range(*span), key=alive.__getitem__) for span in pairwise(edges)]


def _alive(steps: Sequence[Step], bindings: Mapping[str, int]) -> list[int]:
    """How many elements are alive before each step, of what steps made."""
    sizes: dict[str, int] = {}
    total, alive = 0, []
    for step in steps:
        alive.append(total)
        result = step.node.result
        sizes[result.name] = evaluate(product(result.type.shape), bindings)
        total += sizes[result.name] - sum(sizes.get(name, 0) for name in step.done)
    return alive
