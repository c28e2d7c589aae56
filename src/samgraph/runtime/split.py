"""A graph compiled in stages, to inspect the values between them by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from samgraph.engines import MemoryUsage
from samgraph.graph.graph import Graph
from samgraph.runtime.session import CompiledGraph, Session


class SplitGraph(CompiledGraph):
    """A graph cut at its marks (`passes.cut`); each of its `stages` is a compiled graph.

    It has the inputs and outputs of the whole graph, and agrees with it to rounding. Slower: passes
    see one stage at a time, and every value between two stages is written to memory.
    """

    def __init__(
        self,
        source: Graph,
        weights: Mapping[str, Any],
        stages: Sequence[CompiledGraph],
        session: Session,
    ) -> None:
        self.stages = tuple(stages)
        self._staged = _Stages(source, self.stages)
        super().__init__(source, weights, self._staged, session)

    def set_params(self, arrays: Mapping[str, Any]) -> None:
        """Replace weights in every stage that reads them; these are recompiled."""
        unknown = [name for name in arrays if name not in {p.name for p in self.source.params}]
        if unknown:
            super().set_params({unknown[0]: arrays[unknown[0]]})  # which says what there is
        for stage in self.stages:
            own = {p.name for p in stage.source.params} & arrays.keys()
            if own:
                stage.set_params({name: arrays[name] for name in own})

    def run(
        self, inputs: Mapping[str, Any] | None = None, /, *, keep: bool = False, **named: Any
    ) -> dict[str, Any]:
        """Named inputs to named outputs; with `keep`, also every value between stages, by mark."""
        given = {**(inputs or {}), **named}
        if not keep:
            return super().run(given)
        self._check(given)
        return self._staged.values(given, keep=True)


class _Stages:
    """A program that runs stages one after another."""

    def __init__(self, source: Graph, stages: tuple[CompiledGraph, ...]) -> None:
        self._outputs = [name for name, _ in source.outputs]
        self._stages = stages

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of the whole graph."""
        made = self.values(inputs, keep=False)
        return {name: made[name] for name in self._outputs}

    def values(self, inputs: Mapping[str, Any], *, keep: bool) -> dict[str, Any]:
        """The values computed by the stages; without `keep`, dead values are freed."""
        made: dict[str, Any] = {}
        for i, stage in enumerate(self._stages):
            known = {**inputs, **made}
            made |= stage.run({value.name: known[value.name] for value in stage.source.inputs})
            later = {v.name for other in self._stages[i + 1 :] for v in other.source.inputs}
            wanted = made if keep else later.union(self._outputs)
            made = {name: array for name, array in made.items() if name in wanted}
        return made

    def memory(self) -> MemoryUsage:
        """The sum over the stages."""
        parts = [stage.memory() for stage in self._stages]
        return MemoryUsage(sum(m.weights for m in parts), sum(m.compiled for m in parts))

    def export(self) -> None:
        """None: each stage is cached by itself."""
