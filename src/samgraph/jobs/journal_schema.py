"""What `run.json` and lines of `frames.jsonl` may contain: run folders may come from elsewhere."""

from typing import Any

from samgraph.media.image.reading import MAX_SIDE
from samgraph.untrusted.schema import (
    SchemaError,
    either,
    flag,
    list_of,
    number,
    optional,
    record,
    text,
    whole,
)
from samgraph.untrusted.text import strict_json

LONGEST_LINE = 64 << 20
LONGEST_RUN = 16 << 20
ENDING = "ending"
MOST_FRAMES = 2**31
MOST_OBJECTS = 4096

_COUNT = whole(0, MOST_FRAMES)
_SIDE = whole(0, MAX_SIDE)
_OBJECT = record(
    {
        "id": either(whole(-(2**63), 2**63), text(256)),
        "present": flag,
        "prompted": flag,
        "score": number(-1e6, 1e6),
        "object_score": number(-1e6, 1e6),
        "area": whole(0, MAX_SIDE**2),
        "box": list_of(_SIDE, 4, least=4),
        "segmentation": record(
            {
                "size": list_of(whole(1, MAX_SIDE), 2, least=2),
                "counts": text(LONGEST_LINE),
            }
        ),
    }
)
_FRAME: dict[str, Any] = {
    "frame": _COUNT,
    "time": optional(number(-1e12, 1e12)),
    "objects": list_of(_OBJECT, MOST_OBJECTS),
}
_MARKS: dict[str, Any] = {"concealed": flag, "resized": flag, "name": text(1024)}
_ENDING = record(
    {
        "written": _COUNT,
        "skipped": _COUNT,
        "attempted": _COUNT,
        "damage": optional(text(10_000)),
    }
)


def frame_of(line: bytes) -> dict[str, Any] | None:
    """The frame that a line of the journal describes; None for a line that is not whole."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = strict_json(line, most_bytes=LONGEST_LINE)
        marks = {key: kind for key, kind in _MARKS.items() if key in found}
        checked: dict[str, Any] = record({**_FRAME, **marks})(found, "frame")
    except (TypeError, ValueError):
        return None
    return checked


def run_of(data: bytes) -> dict[str, Any]:
    """The content of `run.json`.

    Raises:
        ValueError: It is not what was written there.
    """
    found = strict_json(data, most_bytes=LONGEST_RUN)
    if not isinstance(found, dict):
        raise SchemaError("it is not an object")
    if ENDING in found:
        _ENDING(found[ENDING], ENDING)
    return found
