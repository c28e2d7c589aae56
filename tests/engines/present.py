"""The engines that can be tested here: those whose libraries are installed."""

from samgraph.engines import engine_names, find_engine
from samgraph.errors import EngineError


def _loads(name: str) -> bool:
    try:
        find_engine(name)
    except EngineError:
        return False
    return True


ENGINES = tuple(name for name in engine_names() if _loads(name))
