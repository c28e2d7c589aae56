"""`python -m samgraph` is the command line."""

from samgraph.cli.main import main

main()
