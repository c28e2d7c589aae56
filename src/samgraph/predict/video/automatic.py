"""Objects that nobody named: those of a detector's boxes and of automatic masks, with their ids.

Ids count up from 1 and are never given twice. Only such objects end by themselves; what a user
added stays until it is removed.
"""

from collections.abc import Collection, Hashable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from samgraph.predict.video.bank import MemoryBank
from samgraph.predict.video.prompts import ObjectId
from samgraph.untrusted.schema import Schema, list_of, optional, record, whole

# Prompted frames that are remembered of such an object: its first, and the latest corrections.
MOST_PROMPTED: Final = 4
THUMBNAIL: Final = 16
MOST_FRAMES: Final = 2**31
MOST_OBJECTS: Final = 4096


@dataclass(slots=True)
class Lifetime:
    """How an automatic object fares: the frame of its first mask, and frames since it was missed.

    `missed` counts frames in a row without a detection, or on which it was absent; `area` is in
    pixels of the low-resolution mask where it was last visible.
    """

    born: int
    missed: int = 0
    area: int = 0


@dataclass(slots=True)
class AutomaticObjects:
    """The automatic objects of a stream, by id, and where the search for new ones stands."""

    lifetimes: dict[ObjectId, Lifetime] = field(default_factory=dict)
    next_id: int = 1
    searched: int | None = None  # the last frame that was searched for new things
    thumbnail: NDArray[np.uint8] | None = None  # that frame, [16, 16]

    def new_id(self, taken: Collection[Hashable]) -> int:
        """The next id that no object has."""
        while self.next_id in taken:
            self.next_id += 1
        self.next_id += 1
        return self.next_id - 1

    def begin(self, name: ObjectId, frame: int, area: int = 0) -> None:
        """Count an object as automatic from a frame on."""
        self.lifetimes[name] = Lifetime(frame, area=area)

    def forget(self, name: ObjectId) -> None:
        """An object has ended."""
        self.lifetimes.pop(name, None)

    def clear(self) -> None:
        """As of a stream without any frame; ids go on."""
        self.lifetimes.clear()
        self.searched = self.thumbnail = None

    def described(self) -> dict[str, Any]:
        """All but the thumbnail, for JSON."""
        return {
            "next_id": self.next_id,
            "searched": self.searched,
            "objects": [
                {"name": name, "born": one.born, "missed": one.missed, "area": one.area}
                for name, one in self.lifetimes.items()
            ],
        }

    @classmethod
    def of(cls, checked: Any, names: Iterable[ObjectId]) -> "AutomaticObjects":
        """What `described` gave; objects that are not there are passed over."""
        known = set(names)
        found = cls(next_id=checked["next_id"], searched=checked["searched"])
        for one in checked["objects"]:
            if one["name"] in known:
                found.lifetimes[one["name"]] = Lifetime(one["born"], one["missed"], one["area"])
        return found


def automatic_schema(name: Schema) -> Schema:
    """What a session may say of automatic objects; `name` is the schema of ids."""
    count = whole(0, MOST_FRAMES)
    entry = record(
        {"name": name, "born": whole(-MOST_FRAMES, MOST_FRAMES), "missed": count, "area": count}
    )
    return record(
        {
            "next_id": whole(1, 2**62),
            "searched": optional(whole(-MOST_FRAMES, MOST_FRAMES)),
            "objects": list_of(entry, MOST_OBJECTS),
        }
    )


def limit_prompted(bank: MemoryBank) -> None:
    """Forget corrections beyond a few: the first prompted frame stays, and the latest."""
    prompted: MutableMapping[int, Any] = bank.prompted
    for frame in sorted(prompted)[1 : len(prompted) - MOST_PROMPTED + 1]:
        del prompted[frame]
