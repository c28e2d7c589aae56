"""The command line as a whole: help, exit codes, and the list of formats."""

import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import click
import pytest

from samgraph.cli import main as module
from samgraph.cli.exit_codes import ExitCode, exit_codes_text
from samgraph.cli.option_groups import SectionedCommand, option_group, section
from samgraph.errors import PromptError, SamgraphWarning
from samgraph.formats import FORMATS, IMAGE_FORMATS
from tests.cli.running import call

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_exit_codes_are_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    text = exit_codes_text()

    assert text == (
        "Exit codes: 0 done, 1 our bug, 2 bad input, 3 finished with damage, 130 interrupted."
    )
    assert text in " ".join(README.read_text(encoding="utf-8").split())
    assert text in " ".join(call(monkeypatch, ["--help"]).text.split())


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PromptError("no", got="this"), ExitCode.BAD_INPUT, "error: no\n  got:      this\n"),
        (click.UsageError("no"), ExitCode.BAD_INPUT, "error: no\n"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted\n"),
        (ZeroDivisionError("no"), ExitCode.BUG, "error: ZeroDivisionError: no\n  hint: this is a"),
    ],
)
def test_an_error_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: ExitCode, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module.samgraph, "main", fail)

    done = call(monkeypatch, ["models"])

    assert done.code == code
    assert done.err.startswith(message)


def test_our_warnings_are_a_line_without_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    with pytest.raises(SystemExit):
        module.main(["--version"])

    ours, other = (
        warnings.formatwarning(kind("\x1bodd"), kind, "main.py", 3)
        for kind in (SamgraphWarning, UserWarning)
    )

    assert ours == "warning: \\x1bodd\n"
    assert other.startswith("main.py:3: UserWarning")


def test_every_command_has_help_and_every_option_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = call(monkeypatch, ["--help"]).text
    group = module.samgraph
    context = click.Context(group)

    for name in group.list_commands(context):
        assert f"\n  {name} " in listed
        command = group.get_command(context, name)
        assert command is not None
        assert command.help
        for param in command.params:
            if isinstance(param, click.Option) and name not in ("graph", "bench"):
                assert param.help, f"samgraph {name} {param.opts[0]} has no help"
        assert call(monkeypatch, [name, "--help"]).code == ExitCode.DONE


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("serv", "did you mean `serve`?"),
        ("SEGMNT", "did you mean `segment`?"),
        ("photo.jpg", "`samgraph --help` lists the commands"),
    ],
)
def test_a_mistyped_command_is_bad_input_and_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, typed: str, hint: str
) -> None:
    done = call(monkeypatch, [typed, "--port", "1"])

    assert done.code == ExitCode.BAD_INPUT
    assert done.err == f"error: there is no command `{typed}`\n  hint: {hint}\n"


def test_a_file_and_a_line_are_all_that_a_command_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide of ARCHITECTURE.md, done: options in a frozen class, a line and a code out."""

    @dataclass(frozen=True)
    class Greeting:
        name: str = "nobody"
        loud: bool = False

    @click.command(cls=SectionedCommand)
    @section(
        "Greeting",
        option_group(
            "greeting",
            Greeting,
            click.option("--name", help="Whom to greet."),
            click.option("--loud", is_flag=True, help="In capitals."),
        ),
    )
    @click.option("--twice", is_flag=True, help="Two times.")
    def command(greeting: Greeting, twice: bool) -> ExitCode:
        """Greet."""
        text = f"hello {greeting.name}\n" * (1 + twice)
        click.echo(text.upper() if greeting.loud else text, nl=False)
        return ExitCode.DAMAGE

    greet = ModuleType("samgraph.cli.greet")
    vars(greet)["command"] = command
    monkeypatch.setitem(sys.modules, "samgraph.cli.greet", greet)
    monkeypatch.setitem(module._COMMANDS, "greet", "say hello")

    done = call(monkeypatch, ["greet", "--loud", "--name", "world"])
    assert (done.code, done.text) == (ExitCode.DAMAGE, "HELLO WORLD\n")
    assert call(monkeypatch, ["greet", "--twice"]).text == "hello nobody\n" * 2
    help_text = " ".join(call(monkeypatch, ["greet", "-h"]).text.split())
    assert "Greeting: --name TEXT Whom to greet. --loud In capitals. Other: --twice" in help_text
    assert "greet say hello" in " ".join(call(monkeypatch, ["-h"]).text.split())


def test_the_formats_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(call(monkeypatch, ["formats", "--json"]).out)
    lines = call(monkeypatch, ["formats"]).text.splitlines()

    assert [row["name"] for row in rows] == list(FORMATS)
    assert [line.split()[0] for line in lines] == ["name", *FORMATS]
    by_name = {row["name"]: row for row in rows}
    assert by_name["coco"]["images"] == "annotations.json"
    assert by_name["overlay"]["videos"] == "overlay.mp4"
    assert by_name["labelme"]["images"] == "per image"
    assert [n for n in by_name if by_name[n]["images"] is None] == [
        "sav", "coco-vid", "mot", "mots", "jsonl",
    ]  # fmt: skip
    assert by_name["cutout"]["suffixes"][0] == ".png"


@pytest.mark.parametrize("command", ["segment", "everything"])
def test_commands_on_images_take_every_image_format(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    help_text = " ".join(call(monkeypatch, [command, "--help"]).text.split())

    assert f"What to write, may be repeated: {', '.join(IMAGE_FORMATS)} (" in help_text
    assert " Model: --model NAME|PATH " in help_text
