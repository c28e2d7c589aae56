"""Running the command line in this process, with files and streams of the test's own."""

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from samgraph.cli.main import run
from samgraph.predict.model import Model
from tests.predict.models import small_model


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


@cache
def weights_file(folder: Path) -> Path:
    """The small model as a checkpoint."""
    path = folder / "small.safetensors"
    Model(small_model(14)).save(path)
    return path


def call(
    monkeypatch: pytest.MonkeyPatch, arguments: Sequence[object], stdin: bytes = b""
) -> Outcome:
    """Run `samgraph ARGUMENTS`."""
    streams = [io.TextIOWrapper(io.BytesIO(data), write_through=True) for data in (stdin, b"", b"")]
    with monkeypatch.context() as patch:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        code = run([str(argument) for argument in arguments])
    out, err = (stream.detach().getvalue() for stream in streams[1:])
    return Outcome(code, out, err.decode())
