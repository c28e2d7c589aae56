"""`samgraph serve`: the page and the API."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path

import click

from samgraph.cli.exit_codes import ExitCode
from samgraph.cli.option_groups import SectionedCommand, policy_option, section
from samgraph.cli.options import ModelChoice, model_options
from samgraph.errors import OptionError

_EXAMPLES = """
\b
Examples:
  samgraph serve --open
  samgraph serve --port 9000 --model sam2.1-tiny
  samgraph serve --host 0.0.0.0 --token "$(openssl rand -hex 16)"
"""


@dataclass(frozen=True, slots=True)
class Listening:
    """Says where the page is, and opens it on request."""

    opens: bool

    def __call__(self, address: str) -> None:
        """The server listens at `address`."""
        click.echo(f"samgraph listens on {address}")
        click.echo("Stop it with Ctrl-C; sessions are kept.", err=True)
        if self.opens:
            webbrowser.open(address)


@click.command(cls=SectionedCommand, epilog=_EXAMPLES)
@section(
    "Address",
    click.option(
        "--host", default="127.0.0.1", show_default=True, help="The address to listen on."
    ),
    click.option("--port", default=8000, show_default=True, help="The port; 0 takes a free one."),
    click.option(
        "--token",
        envvar="SAMGRAPH_TOKEN",
        help="What clients must show; needed for any address but this machine's own.",
    ),
    click.option(
        "--allow-host",
        "allow_hosts",
        multiple=True,
        metavar="HOST[:PORT]",
        help="Fetch files from this host for annotation tools; may be repeated.",
    ),
    click.option("--open", "opens", is_flag=True, help="Open the page in a browser."),
)
@section(
    "Limits",
    click.option("--folder", type=click.Path(path_type=Path), help="Where sessions are kept."),
    click.option("--max-upload-mb", type=float, help="The largest file accepted."),
    click.option(
        "--max-tool-body-mb", type=float, help="The largest request of an annotation tool."
    ),
    click.option("--max-pixels", type=int, help="The most pixels of an image."),
    click.option("--max-sessions", type=int, help="The most sessions on disk."),
    click.option("--max-disk-mb", type=float, help="The most megabytes of sessions on disk."),
    click.option("--max-loaded", type=int, help="The most sessions in memory."),
    click.option("--idle-seconds", type=float, help="Delete sessions not used for this long."),
    click.option("--working", type=int, help="Requests that use the model at the same time."),
    click.option("--waiting", type=int, help="Requests that may wait; others get 503."),
)
@section("Tracking", policy_option)
@section("Model", model_options)
def command(choice: ModelChoice, opens: bool, **given: object) -> ExitCode:
    """Serve a page to click on images and videos, and an API, on this machine.

    Uploads and results are kept in --folder and survive a restart.
    """
    try:
        from samgraph.serve.options import ServeOptions
        from samgraph.serve.running import run
    except ModuleNotFoundError as error:
        raise OptionError(
            f"the server needs `{error.name}`", hint='pip install "samgraph[serve,video]"'
        ) from error
    chosen = {name: value for name, value in given.items() if value is not None}
    options = ServeOptions(**chosen)  # type: ignore[arg-type]  # by name, typed by click
    run(choice.load(), options, Listening(opens))
    return ExitCode.DONE
