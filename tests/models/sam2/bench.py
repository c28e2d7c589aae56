"""A bench for parts of the model: traces, compiles and runs them, each graph once."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from samgraph.graph import Array, Graph, Scope, Tensor, TensorType, trace
from samgraph.graph.types import type_of
from samgraph.models.sam2 import graphs
from samgraph.models.sam2.config import Sam2Config, find_config
from samgraph.models.sam2.graph_set import GraphSet
from samgraph.models.sam2.tracker_config import TrackerConfig
from samgraph.runtime import CompiledGraph, CompileOptions, Session
from samgraph.runtime.profiles import Profile
from tests import weights
from tests.golden.configs import CONFIGS, ModelFields
from tests.golden.reading import Golden, golden

Outputs = dict[str, Array]
Part = Callable[..., Mapping[str, Tensor]]

# The words of `tests/golden/configs.py`, and ours.
_FIELDS = {
    "image_size": "image_size",
    "embed_dim": "embed_dim",
    "num_heads": "heads",
    "stages": "stages",
    "global_att_blocks": "global_blocks",
    "window_pos_embed_bkg_spatial_size": "background_size",
    "window_spec": "windows",
    "d_model": "channels",
    "mem_dim": "memory_channels",
    "num_memory_layers": "memory_layers",
    "dim_feedforward": "memory_feedforward",
    "num_maskmem": "memory_frames",
    "no_obj_embed_spatial": "hidden_object_embedding",
    "add_tpos_enc_to_obj_ptrs": "pointer_time",
    "proj_tpos_enc_in_obj_ptrs": "project_pointer_time",
    "use_signed_tpos_enc_to_obj_ptrs": "signed_pointer_time",
}

# Parts are traced next to the whole they belong to. The engines' own passes compute what both
# share only once; the reference engine has no passes, so it is given this one, which is exact.
_SHARING = Profile("sharing", also=("merge_duplicates",))


def config_from(fields: ModelFields, name: str) -> Sam2Config:
    """Our config for a configuration of the golden files."""
    plain = {_FIELDS[key]: value for key, value in fields.as_json().items()}
    return find_config({"name": name, **plain})


def config_of(meta: Mapping[str, Any]) -> Sam2Config:
    """Our config for the `__meta__` of a golden file."""
    named = meta["config"]
    name = str(named if isinstance(named, str) else meta["name"])
    return config_from(CONFIGS[name], name)


@cache
def known_weights(config: Sam2Config, seed: int) -> dict[str, Array]:
    """The weights of `tests/weights.py`, made once."""
    return dict(weights.state(graphs.weight_shapes(config), seed))


def bench_for(name: str, engine: str) -> tuple[Golden, "Bench"]:
    """One of our golden files by its configuration, and a bench with its weights."""
    file = golden(f"components_{name}")
    config = config_of(file.meta)
    return file, Bench(config, known_weights(config, file.weights_seed), engine)


class Bench:
    """Runs parts of one model on one engine. What it has compiled it keeps."""

    def __init__(
        self,
        config: TrackerConfig,
        weights: Mapping[str, Array],
        engine: str,
        profile: str = "fused",
        graph_set: GraphSet = graphs.GRAPHS,
    ) -> None:
        self.config, self.weights, self.graph_set = config, weights, graph_set
        chosen = _SHARING if engine == "reference" else profile
        self.session = Session("cpu", CompileOptions(engine=engine, cache=False, profile=chosen))
        self._compiled: dict[object, CompiledGraph] = {}

    def run(
        self, part: Part, types: Mapping[str, str] | None = None, /, **inputs: Array
    ) -> Outputs:
        """Trace `part(scope, config, **inputs)` and run it; `types` may leave sizes open."""
        given: dict[str, TensorType | str] = {name: type_of(x) for name, x in inputs.items()}
        given |= types or {}
        key = (part, tuple(map(str, given.values())))
        config = self.config

        def model(at: Scope, **tensors: Tensor) -> Mapping[str, Tensor]:
            return part(at, config, **tensors)

        return self._keep(key, lambda: trace("part", model, given)).run_numpy(inputs)

    def graph(self, name: str, **inputs: Array) -> Outputs:
        """Run one of the model's own graphs."""
        trace = {**self.graph_set.traces, **self.graph_set.tracking}[name]
        return self._keep(name, lambda: trace(self.config)).run_numpy(inputs)

    def _keep(self, key: object, make: Callable[[], Graph]) -> CompiledGraph:
        if key not in self._compiled:
            self._compiled[key] = self.session.compile(make(), self.weights)
        return self._compiled[key]


def rows(array: Array, count: int) -> Array:
    """One row repeated, or the rows that are there."""
    return array if len(array) == count else np.repeat(array, count, axis=0)
