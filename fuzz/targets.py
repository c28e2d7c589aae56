"""All targets by name; `planted` breaks every promise in turn, so that tests see each caught."""

import os
import random
import tempfile
import time
from pathlib import Path

from fuzz import conversions, manifests, media, saved, scans, served, texts, weights
from fuzz.target import Target
from samgraph.errors import ImageError


class PlantedTarget(Target):
    """Breaks one promise after another: the fuzzer must find each."""

    name, errors, seconds, megabytes = "planted", (ImageError,), 0.2, 64
    faults = ("none", "leak", "slow", "memory", "message", "kill", "hang", "write", "spawn")

    def make(self, rng: random.Random) -> bytes:
        return rng.choice(self.faults).encode()

    def use(self, data: bytes, folder: Path) -> None:
        match data:
            case b"none":
                raise ImageError("this is fine")
            case b"leak":
                raise KeyError("leaked")
            case b"slow":
                end = time.process_time() + 0.4
                while time.process_time() < end:
                    pass
            case b"memory":
                bytearray(1 << 30)
            case b"message":
                error = ImageError("a")
                error.args = ("a" * 10_000,)  # made otherwise, it would be cut
                raise error
            case b"kill":
                os.abort()
            case b"hang":
                time.sleep(3600)
            case b"write":
                Path(tempfile.gettempdir(), "samgraph-fuzz-was-here").write_text("")
            case b"spawn":
                os.system("true")

    def good(self) -> list[bytes]:
        return [b"warm"]


TARGETS: dict[str, type[Target]] = {
    kind.name: kind
    for group in (weights, saved, media, scans, texts, manifests, conversions, served)
    for kind in group.TARGETS
}


def find_target(name: str) -> Target:
    """The target of that name."""
    return PlantedTarget() if name == PlantedTarget.name else TARGETS[name]()
