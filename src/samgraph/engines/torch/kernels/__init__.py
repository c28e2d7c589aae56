"""Triton kernels of the torch engine, one file each, and the rules that choose among them.

`kernel_rules()` gives the rules, or None where Triton is missing: then torch's own functions run.
"""

from samgraph.engines.torch.kernels.rules import has_kernels, kernel_rules

__all__ = ["has_kernels", "kernel_rules"]
