"""Every pass there is: those that engines share, and those of each engine that can be loaded."""

from samgraph.engines import find_engine
from samgraph.engines.native import NATIVE_PASSES
from samgraph.passes import PASSES, Pass
from tests.engines.present import ENGINES

OWN_PASSES: dict[str, Pass] = {
    step.name: step.run
    for engine in ENGINES
    for step in (*find_engine(engine).passes, *NATIVE_PASSES)
    if step.name not in PASSES
}
EVERY_PASS: dict[str, Pass] = PASSES | OWN_PASSES
