"""A step recorded once as a CUDA graph and replayed: thousands of small kernels, one launch.

A step of ours is bound by the time Python needs to start kernels, not by the GPU: recorded, a
step of the video stage takes less than half the time.
"""

from collections.abc import Callable

import torch

Losses = dict[str, torch.Tensor]


class Recorded:
    """Losses of some tensors, with gradients left in the weights. Shapes must stay the same.

    Random numbers inside `compute` must come from torch's default generator.
    """

    _pool: tuple[int, int] | None = None  # memory, shared: steps run one at a time

    def __init__(
        self, compute: Callable[..., Losses], weights: list[torch.Tensor], *, eager: bool = False
    ) -> None:
        self.compute, self.weights = compute, weights
        self.eager = eager or weights[0].device.type == "cpu"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._given: list[torch.Tensor] = []
        self._found: Losses = {}
        self._gradients: list[torch.Tensor | None] = []

    def __call__(self, *given: torch.Tensor) -> Losses:
        """The losses; the gradients of their sum are in the weights."""
        if self.eager:
            self._clear()
            return self._step(*given)
        if self._graph is None:
            self._record(given)
        for old, new in zip(self._given, given, strict=True):
            old.copy_(new)
        assert self._graph is not None
        self._graph.replay()
        for weight, gradient in zip(self.weights, self._gradients, strict=True):
            weight.grad = gradient
        return self._found

    def _step(self, *given: torch.Tensor) -> Losses:
        losses = self.compute(*given)
        torch.stack(list(losses.values())).sum().backward()
        return {name: loss.detach() for name, loss in losses.items()}

    def _record(self, given: tuple[torch.Tensor, ...]) -> None:
        self._given = [tensor.clone() for tensor in given]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # caches fill up, workspaces are made
            for _ in range(2):
                self._clear()
                self._step(*self._given)
        torch.cuda.current_stream().wait_stream(aside)
        self._clear()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=Recorded._pool):
            self._found = self._step(*self._given)
        Recorded._pool = graph.pool()
        self._graph, self._gradients = graph, [weight.grad for weight in self.weights]
        self._clear()

    def _clear(self) -> None:
        for weight in self.weights:
            weight.grad = None
