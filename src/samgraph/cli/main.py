"""The command line: `samgraph COMMAND ...`. One file a command, imported when it is called.

Exit codes: 0 done, 1 a bug of ours, 2 bad input, 3 finished with damage, 130 interrupted.
"""

import importlib
import os
import sys
from collections.abc import Sequence

import click

from samgraph.errors import SamgraphError
from samgraph.version import __version__

_COMMANDS = {
    "segment": "cut objects out of images with clicks, boxes or masks",
    "everything": "segment everything in images",
    "track": "follow objects through a video",
    "eval": "measure quality on a data set",
    "models": "list the models: names, sizes, what is downloaded",
    "graph": "look at a graph of the model, before or after passes",
    "bench": "time the graphs of a model: compiling and running",
}
DONE, OUR_BUG, BAD_INPUT, DAMAGE, INTERRUPTED = 0, 1, 2, 3, 130


class _Commands(click.Group):
    """Commands by name, each imported only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"samgraph.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="samgraph")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def samgraph(debug: bool) -> None:
    """SAM 2 from compiled graphs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the code that says how it went."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(given))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code."""
    debug = "--debug" in arguments
    try:
        code = samgraph.main(list(arguments), prog_name="samgraph", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        _say("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        _say(f"error: {error.format_message()}")
        return BAD_INPUT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except SamgraphError as error:
        if debug:
            raise
        _say(f"error: {error}")
        return BAD_INPUT
    except Exception as error:
        if debug:
            raise
        _say(f"error: {type(error).__name__}: {error}\n  hint: this is a bug; --debug shows where")
        return OUR_BUG


def _say(text: str) -> None:
    click.echo(text, err=True)
