"""How each op of a graph runs: by a rule of the engine, or rewritten by passes."""

from collections import Counter
from dataclasses import dataclass

from samgraph.graph.graph import Graph
from samgraph.runtime.session import Session

_QUIET = ("constant",)  # not computed


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One op: how many nodes were traced and are compiled, how they run, and in which precision.

    `rewritten` names the passes after which there were fewer nodes of it, each with the ops that it
    put there. `precisions` counts the compiled nodes.
    """

    op: str
    traced: int
    compiled: int
    has_rule: bool
    rewritten: dict[str, tuple[str, ...]]
    precisions: dict[str, int]

    @property
    def how(self) -> str:
        """In words: `native` where the engine has a rule for it, or what it is rewritten to."""
        if self.compiled:
            return "native"
        steps = [
            f"{name} -> {', '.join(ops)}" if ops else name for name, ops in self.rewritten.items()
        ]
        return "; ".join(steps if self.has_rule else ["no rule", *steps])


def dispatch(session: Session, graph: Graph) -> list[Dispatch]:
    """A row for every op of the traced or the compiled graph, by name."""
    counts = [_count(graph)]
    rewritten: dict[str, dict[str, tuple[str, ...]]] = {}

    def watch(step: str, after: Graph) -> None:
        before, now = counts[-1], _count(after)
        added = tuple(op for op in now if now[op] > before[op] and op not in _QUIET)
        for op in before:
            if now[op] < before[op]:
                steps = rewritten.setdefault(op, {})
                steps[step] = tuple(dict.fromkeys((*steps.get(step, ()), *added)))
        counts.append(now)

    compiled = session.optimise(graph, watch)
    precisions: dict[str, Counter[str]] = {}
    for node in compiled:
        precisions.setdefault(node.op, Counter())[session.precision_of(node)] += 1
    traced, last = counts[0], _count(compiled)
    return [
        Dispatch(
            op,
            traced[op],
            last[op],
            op in session.engine.ops,
            rewritten.get(op, {}),
            dict(precisions.get(op, {})),
        )
        for op in sorted(traced | last)
        if op not in _QUIET
    ]


def _count(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph)
