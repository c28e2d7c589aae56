"""What a target is: how inputs are made, how they are used, and which errors it may raise."""

import random
from abc import ABC, abstractmethod
from pathlib import Path

from samgraph.errors import SamgraphError

LONGEST_MESSAGE = 5000


class BrokenPromiseError(Exception):
    """An input did what no input may do."""


class Target(ABC):
    """A reader under test. `make` must depend on the generator alone."""

    name: str
    errors: tuple[type[SamgraphError], ...] = (SamgraphError,)
    seconds: float = 2.0  # of computing that one input may take
    megabytes: int = 512  # that it may take beyond what the process has after warming up

    @abstractmethod
    def make(self, rng: random.Random) -> bytes:
        """One input."""

    @abstractmethod
    def use(self, data: bytes, folder: Path) -> None:
        """Give the input to the reader; `folder` is the only place it may write to."""

    @abstractmethod
    def good(self) -> list[bytes]:
        """Inputs that are taken without an error; they warm the process up."""

    def attempt(self, data: bytes, folder: Path) -> str:
        """Use an input: `taken` or `refused`.

        Raises:
            BrokenPromiseError: It was refused in a way that is not promised.
        """
        try:
            self.use(data, folder)
        except BrokenPromiseError:
            raise
        except self.errors as error:
            check_message(str(error))
            return "refused"
        except SamgraphError as error:
            raise BrokenPromiseError(f"it raised {type(error).__name__}: {error}"[:500]) from error
        except MemoryError as error:
            raise BrokenPromiseError("it took too much memory") from error
        except Exception as error:
            raise BrokenPromiseError(f"it leaked {type(error).__name__}: {error}"[:500]) from error
        return "taken"


def check_message(message: str) -> None:
    """Refuse a message that is endless, or that could steer a terminal."""
    if len(message) > LONGEST_MESSAGE:
        raise BrokenPromiseError(f"its message has {len(message):,} characters")
    if not all(line.isprintable() for line in message.split("\n")):
        raise BrokenPromiseError(f"its message cannot be shown: {message[:200]!r}")
