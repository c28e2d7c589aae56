"""The command line: `samgraph COMMAND ...`. One file per command, imported when it is called."""

import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches

import click

from samgraph.cli.exit_codes import ExitCode, exit_codes_text
from samgraph.errors import SamgraphError, SamgraphWarning, brief, printable
from samgraph.version import __version__

_COMMANDS = {
    "segment": "masks of objects in images, from clicks, boxes or masks",
    "everything": "automatic masks of everything in images",
    "track": "follow objects through a video",
    "volume": "objects in a CT or MR scan, from a box on one slice",
    "batch": "any of these on many files, on all cores or on Ray, resumable",
    "serve": "a page to click on images and videos, and an HTTP API",
    "convert": "masks from one format to another, with no model",
    "export": "write the graphs of a model as files for other runtimes: ONNX, OpenVINO",
    "eval": "measure mask quality on a data set",
    "models": "list the models: names, sizes, what is downloaded",
    "devices": "list the devices: what each can do, and which is chosen",
    "formats": "list the formats that results are written in",
    "graph": "show a graph of the model, before or after passes",
    "bench": "time the graphs of a model: compiling and running",
}


class _Commands(click.Group):
    """Commands by name, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"samgraph.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in _COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        near = get_close_matches(name[:80].lower(), _COMMANDS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "`samgraph --help` lists the commands"
        raise click.UsageError(f"there is no command `{brief(name)}`\n  hint: {hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=exit_codes_text(),
)
@click.version_option(__version__, prog_name="samgraph")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def samgraph(debug: bool) -> None:
    """SAM 2 from compiled graphs: segment images, track objects through videos.

    The model is the built-in samgraph-nano, or another with --model (see `samgraph models`).
    `samgraph COMMAND --help` has the options and examples of a command.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; the codes are `ExitCode`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    warnings.formatwarning = _warning_text
    sys.exit(run(given))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code."""
    debug = "--debug" in arguments
    _take_any_name()
    try:
        code = samgraph.main(list(arguments), prog_name="samgraph", standalone_mode=False)
        return code if isinstance(code, int) else ExitCode.DONE
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt) as stop:
        cause = stop.__cause__ if isinstance(stop, click.exceptions.Abort) else stop
        hint = f"\n  hint: {cause.args[0]}" if cause is not None and cause.args else ""
        _print(f"interrupted{hint}")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        _print(f"error: {brief(error.format_message())}")
        return ExitCode.BAD_INPUT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except SamgraphError as error:
        if debug:
            raise
        _print(f"error: {error}")
        return ExitCode.BAD_INPUT
    except Exception as error:
        if debug:
            raise
        _print(
            f"error: {type(error).__name__}: {brief(error)}\n"
            f"  hint: this is a bug; --debug shows where"
        )
        return ExitCode.BUG


def _print(text: str) -> None:
    click.echo(printable(text), err=True)


_PLAIN = warnings.formatwarning


def _warning_text(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Our own are for whoever runs the command: without a line of source."""
    if issubclass(category, SamgraphWarning):
        return printable(f"warning: {message}\n")
    return _PLAIN(message, category, filename, lineno, line)


def _take_any_name() -> None:
    """Escape what the terminal's encoding lacks, such as bytes of a name that are not UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
