"""The document of a video session: objects, and prompts that are not in its state yet.

`document.json` is replaced whole at every change, before the change is acknowledged. It names the
file with the tracking state, and holds the operations since that was saved: a server that is killed
does them again.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from samgraph.errors import CheckpointError
from samgraph.media.files import write_atomically
from samgraph.serve.schema import Box, Color, Labels, Mask, Name, ObjectNumber, Points, Span, Whole
from samgraph.serve.store import DOCUMENT
from samgraph.untrusted.files import read_regular

LONGEST = 256 << 20

NextNumber = Annotated[int, Meta(ge=1, le=2**31)]  # one more than the largest number


class Operation(msgspec.Struct):
    """A change of the prompts of an object."""

    kind: Literal["prompt", "clear", "remove"]
    object: ObjectNumber
    frame: Whole = 0
    points: Points | None = None
    labels: Labels | None = None
    box: Box | None = None
    mask: Mask | None = None


class NamedObject(msgspec.Struct):
    """An object: its name and colour; `version` counts the changes of its prompts."""

    id: ObjectNumber
    name: Name | None = None
    color: Color | None = None
    version: Whole = 0


class VideoDocument(msgspec.Struct):
    """The content of `document.json`; `state` is the name of the file with the tracking state."""

    version: Literal[1] = 1
    next_id: NextNumber = 1
    objects: list[NamedObject] = []
    state: Name | None = None
    pending: list[Operation] = []
    running: list[Span] = []

    def find(self, number: int) -> NamedObject | None:
        """An object by its id."""
        return next((obj for obj in self.objects if obj.id == number), None)

    def save(self, folder: Path) -> None:
        """Replace the file."""
        write_atomically(folder / DOCUMENT, msgspec.json.encode(self))


def read_document(folder: Path) -> VideoDocument:
    """The document of a session; an empty one where there is none yet.

    Raises:
        CheckpointError: The file is damaged.
    """
    path = folder / DOCUMENT
    try:
        data = read_regular(path, LONGEST)
        found = msgspec.json.decode(data or b"", type=VideoDocument)
    except FileNotFoundError:
        return VideoDocument()
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError("the document of the session is damaged") from error
    if found.state is not None and ("/" in found.state or found.state.startswith(".")):
        raise CheckpointError("the document of the session is damaged")
    return found
