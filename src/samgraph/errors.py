"""The exceptions of samgraph, named after what the caller must fix.

A message is one fact, with the offending value in backticks, then up to three short lines:

    `cat.gif` has 9,000 x 9,000 pixels
      got:      81.0 megapixels
      expected: at most 64
      hint: pass `max_pixels=90_000_000`
"""

LONGEST_PART = 1200  # characters of what, got, expected, hint each


class SamgraphError(Exception):
    """Base of all errors raised on purpose by this package."""

    def __init__(
        self, what: str, *, got: object = None, expected: object = None, hint: str | None = None
    ) -> None:
        self.what, self.got, self.expected, self.hint = brief(what), got, expected, hint
        lines = [self.what]
        if got is not None:
            lines.append(f"  got:      {brief(got)}")
        if expected is not None:
            lines.append(f"  expected: {brief(expected)}")
        if hint is not None:
            lines.append(f"  hint: {brief(hint)}")
        super().__init__("\n".join(lines))


def brief(part: object, longest: int = LONGEST_PART) -> str:
    """A part of a message, printable; the middle is left out of what no person would read."""
    try:
        text = str(part)
    except (ValueError, RecursionError):  # a number of thousands of digits, a nest without end
        text = f"a {type(part).__name__} that is too long to show"
    return _cut(printable(_cut(text, longest)), longest)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest * 2 // 3]}…{text[-longest // 3 :]}"


def printable(text: str) -> str:
    """`text` with control and format characters escaped, so that it cannot control a terminal.

    Line breaks are kept. Bytes of a file name that are not UTF-8 are shown in hexadecimal.
    """
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else _escaped(ord(c)) for c in text)


def _escaped(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # how Python carries a byte that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class ShapeError(SamgraphError, TypeError):
    """An operation was applied to tensors whose types do not fit it."""


class GraphError(SamgraphError, ValueError):
    """A graph breaks a rule: bad text, an unknown op, a value used before it is defined."""


class OptionError(SamgraphError, ValueError):
    """A setting cannot be used: an unknown name, a value out of range, a bad profile file."""


class InputError(SamgraphError, ValueError):
    """Arguments of a compiled graph do not fit its inputs."""


class EngineError(SamgraphError, RuntimeError):
    """An engine is missing, cannot run here, or failed while compiling or running."""


class DeviceMemoryError(EngineError, MemoryError):
    """A device has no memory left for what is asked of it; less of it may still fit."""


class CheckpointError(SamgraphError, ValueError):
    """A checkpoint cannot be used: damaged, unsafe, or made for another model."""


class DownloadError(CheckpointError, OSError):
    """A file could not be downloaded, or has the wrong hash."""


class ImageError(SamgraphError, ValueError):
    """An image cannot be used: damaged, too large, or of a format that is not read."""


class VideoError(SamgraphError, ValueError):
    """A video cannot be used: damaged, empty, or of a format that is not read."""


class PromptError(SamgraphError, ValueError):
    """A prompt does not make sense for this image or video."""


class CapacityError(SamgraphError, MemoryError):
    """A request exceeds the limits that were set."""


class OutputError(SamgraphError, OSError):
    """A result cannot be written to its destination."""


class SamgraphWarning(UserWarning):
    """Something is slower or less than requested, but the result is right."""
