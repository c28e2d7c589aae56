"""The model: a config, its weights, and its graphs, compiled when they are first run."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from samgraph.errors import GraphError
from samgraph.graph import Array, Graph
from samgraph.models.sam2.config import Sam2Config
from samgraph.models.sam2.graphs import TRACES, UNREAD
from samgraph.models.sam2.split import SplitMemoryAttention
from samgraph.passes.specialise import specialise
from samgraph.runtime import CompiledGraph, CompileOptions, Session

# Prompts and decoder lose masks in bf16 (0.88 to 0.92 IoU), so they never run in it.
ALWAYS_FP32 = frozenset(("decode", "mask_prompt", "prepare_image", "decode_prepared"))
Runnable = CompiledGraph | SplitMemoryAttention
# Most calls are of one image, prompt or object. An engine runs a fixed size faster, so these
# graphs also exist for one: the symbol, and the input whose first axis tells.
FOR_ONE = {
    "image_encoder": ("B", "image"),
    "decode": ("N", "points"),
    "memory_encoder": ("N", "mask"),
    "prepare_image": ("B", "embedding"),
    "decode_prepared": ("N", "points"),
}


class Sam2Model:
    """SAM 2 ready to run. Safe to use from several threads at once."""

    def __init__(
        self,
        config: Sam2Config,
        weights: Mapping[str, Array],
        *,
        device: str = "auto",
        options: CompileOptions | None = None,
        traced: Mapping[str, Graph] | None = None,
    ) -> None:
        self.config = config
        self.weights = dict(weights)
        options = options or CompileOptions()
        self.session = Session(device, options)
        self._exact = self.session
        if options.chosen_precision != "fp32":
            self._exact = Session(device, replace(options, precision="fp32"))
        self._traced: dict[str, Graph] = dict(traced or {})
        self._compiled: dict[str, Runnable] = {}
        self._locks: dict[str, threading.Lock] = {}
        self.graphs = GraphTable(self)

    def __repr__(self) -> str:
        return f"<{self.config.name} at {self.config.image_size} px: {self.session.reason}>"

    def graph(self, name: str) -> Graph:
        """The graph called `name`, as traced."""
        if name not in TRACES:
            raise GraphError(f"there is no graph `{name}`", expected=", ".join(TRACES))
        if name not in self._traced:
            self._traced[name] = TRACES[name](self.config)
        return self._traced[name]

    def compiled(self, name: str, *, for_one: bool = False) -> Runnable:
        """The graph called `name`, ready to run; `for_one` is its version for a batch of one.

        A thread waits only for a compilation of the same graph.
        """
        key = f"{name} for one" if for_one else name
        if key not in self._compiled:
            with self._locks.setdefault(key, threading.Lock()):
                if key not in self._compiled:
                    self._compiled[key] = self._compile(name, for_one)
        return self._compiled[key]

    def run(self, name: str, **inputs: Array) -> dict[str, Array]:
        """Run a graph by name."""
        symbol, told_by = FOR_ONE.get(name, ("", ""))
        for_one = bool(symbol) and told_by in inputs and len(inputs[told_by]) == 1
        return self.compiled(name, for_one=for_one).run(inputs)

    def session_for(self, name: str) -> Session:
        """The session that compiles a graph: in float32 where a lower precision costs masks."""
        return self._exact if name in ALWAYS_FP32 else self.session

    @property
    def hidden_pointer(self) -> Array:
        """The pointer that stands for an object that is not to be seen: [1, C]."""
        return self.weights["no_obj_ptr"]

    def checkpoint(self) -> dict[str, Array]:
        """Every tensor, under the names of a checkpoint."""
        width = self.config.channels
        missing = {name: np.zeros((1, 1, width), np.float32) for name in UNREAD}
        return missing | self.weights

    def _compile(self, name: str, for_one: bool) -> Runnable:
        session = self.session_for(name)
        split = session.options.chosen_profile.stages == "split"
        if name == "memory_attention" and split:
            return SplitMemoryAttention(
                self.config, lambda graph: session.compile(graph, self.weights)
            )
        graph = self.graph(name)
        if for_one:
            graph = specialise(graph, {FOR_ONE[name][0]: 1})
        return session.compile(graph, self.weights)


class GraphTable(Mapping[str, Runnable]):
    """The model's graphs by name, compiled when they are first asked for."""

    def __init__(self, model: Sam2Model) -> None:
        self._model = model

    def __getitem__(self, name: str) -> Runnable:
        return self._model.compiled(name)

    def __iter__(self) -> Iterator[str]:
        return iter(TRACES)

    def __len__(self) -> int:
        return len(TRACES)
