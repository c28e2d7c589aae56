"""The built-in model: its file, sha256 and measured quality.

    samgraph-nano.safetensors    beside this file; fp16, config in its header, made by `training/`

The file's sha256 is checked before it is used. `MODEL_CARD.md` explains the figures; `samgraph
models` shows them.
"""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from samgraph.errors import CheckpointError

FOLDER = Path(__file__).resolve().parent
_REINSTALL = "reinstall samgraph: `pip install --force-reinstall --no-deps samgraph`"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A model file of the package: its name, size, sha256 and measured quality."""

    name: str
    file: str
    sha256: str
    size_bytes: int
    parameters: int
    quality: dict[str, float] = field(default_factory=dict)


# After training, fill in what `sha256sum`, `wc -c` and `training.measure` print. The words of
# `quality`: "box", "1 click", "5 clicks" (like the teacher) and "J" (`eval davis`), 0 to 1.
NANO = BuiltIn(
    name="samgraph-nano",
    file="samgraph-nano.safetensors",
    sha256="f2f5305f71c09d7d11a912771834762f3e468ffc8471b35e1a2fa6e15f29d13b",
    size_bytes=26049660,
    parameters=12_996_146,
    quality={"box": 0.89, "1 click": 0.87, "5 clicks": 0.94, "J": 0.78},
)
ALIASES = ("samgraph-nano", "nano")


def is_built_in(source: object) -> bool:
    """Whether `source` is the name of the built-in model."""
    if not isinstance(source, str):
        return False
    return source.strip().lower().replace("_", "-") in ALIASES


def built_in_path() -> Path:
    """The path of the built-in model, after checking its sha256. Costs a read of the file.

    Raises:
        CheckpointError: The file is missing, cut short, or not the one of this version.
    """
    path = FOLDER / NANO.file
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != NANO.size_bytes:
                raise _damaged(f"{size:,} bytes", f"{NANO.size_bytes:,}")
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise CheckpointError(
            "the built-in model is missing", got=f"no file `{path}`", hint=_REINSTALL
        ) from error
    except OSError as error:
        raise CheckpointError(
            "the built-in model cannot be read", got=error.strerror or str(error), hint=_REINSTALL
        ) from error
    if digest != NANO.sha256:
        raise _damaged(f"sha256 {digest}", f"sha256 {NANO.sha256}")
    return path


def _damaged(got: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"the built-in model is damaged: `{FOLDER / NANO.file}`",
        got=got,
        expected=expected,
        hint=_REINSTALL,
    )
