"""The torch engine: our graph walked node by node with torch tensors, on a CPU or a GPU.

It serves, like the other engines, and it trains: `evaluate` is differentiable with respect to
inputs and params, so what is trained is the graph that is served.
"""

from samgraph.engines.torch.engine import TorchEngine, engine
from samgraph.engines.torch.evaluation import Evaluator, evaluate
from samgraph.engines.torch.settings import plain_float32

__all__ = ["Evaluator", "TorchEngine", "engine", "evaluate", "plain_float32"]
