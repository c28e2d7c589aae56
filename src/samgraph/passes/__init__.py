"""Passes: functions from graph to graph, one file each; `pipeline` lists them in order."""

from samgraph.passes.fold_params import fold_params
from samgraph.passes.pipeline import COMMON, PASSES, Pass, Step, optimise, passes_for

__all__ = ["COMMON", "PASSES", "Pass", "Step", "fold_params", "optimise", "passes_for"]
