"""What becomes of programs when the interpreter ends."""

import subprocess
import sys

CHILD = """
import numpy as np
from samgraph.engines.openvino import program
from samgraph.runtime import CompileOptions, Session
from tests.runtime.graphs import mlp

program.ModelStage.__del__ = lambda self: print("taken apart")
graph, weights = mlp()
for _ in range(2):
    compiled = Session("cpu", CompileOptions(threads=1, cache=False)).compile(graph, weights)
    compiled.run(x=np.ones((6, 8), np.float32))
print("end")
"""


def test_a_program_in_use_is_left_to_the_system_and_another_is_taken_apart() -> None:
    child = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", CHILD],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (child.returncode, child.stderr) == (0, "")
    assert child.stdout.split("\n") == ["taken apart", "end", ""]
