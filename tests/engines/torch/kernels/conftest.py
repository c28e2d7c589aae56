"""The kernels run in Triton's interpreter here: on the CPU, at small shapes.

Triton decides when a kernel is defined whether it will be interpreted, so this must be said before
anything imports the kernels; nothing else does on a machine without a GPU.
"""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
