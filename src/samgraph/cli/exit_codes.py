"""The exit codes of the command line."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended, with its meaning in words."""

    meaning: str

    DONE = 0, "done"
    BUG = 1, "our bug"
    BAD_INPUT = 2, "bad input"
    DAMAGE = 3, "finished with damage"
    INTERRUPTED = 130, "interrupted"

    def __new__(cls, value: int, meaning: str) -> "ExitCode":
        """A code with its meaning."""
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code


def exit_codes_text() -> str:
    """All codes in one sentence, for help and documents."""
    return "Exit codes: " + ", ".join(f"{code.value} {code.meaning}" for code in ExitCode) + "."
