"""The folder of the command-line tests, for jobs that are started by a command."""

from tests.cli.conftest import folder, samgraph, weights

__all__ = ["folder", "samgraph", "weights"]
