"""Passes: functions from graph to graph, one file each; `pipeline` lists them in order."""

from samgraph.passes.fold_constants import fold_params
from samgraph.passes.pipeline import PASSES, PIPELINES, Pass, optimise, passes_for

__all__ = ["PASSES", "PIPELINES", "Pass", "fold_params", "optimise", "passes_for"]
