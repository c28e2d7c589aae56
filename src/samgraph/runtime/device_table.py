"""The devices of this machine: what each can do, why others are missing, and which is chosen."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from samgraph.engines import Device, find_engine
from samgraph.engines.devices import KINDS, UNTESTED, why_absent
from samgraph.engines.protocol import DeviceFinder, DeviceInfo, Precision, candidates
from samgraph.errors import EngineError
from samgraph.runtime.cache import default_cache_dir
from samgraph.runtime.devices import choose
from samgraph.runtime.options import CompileOptions


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device, or a kind of device that is not here (`why_not` says why)."""

    device: str  # what to give as `device`
    engine: str | None
    name: str | None = None
    precisions: tuple[Precision, ...] = ()  # the default first
    memory_bytes: int | None = None
    is_tested: bool = True
    is_chosen: bool = False
    note: str | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """All devices, and the choice of `auto` in a sentence."""

    rows: tuple[DeviceRow, ...]
    reason: str


def device_table(options: CompileOptions | None = None) -> DeviceTable:
    """Ask every engine that is a candidate for a device which it finds.

    An engine's library is loaded only where one of its devices may be here. The first time a CPU is
    asked, a child process tries its bf16, for some seconds.
    """
    options = options or CompileOptions()
    memory = default_cache_dir(options.cache_dir) / "machine.json" if options.cache else None
    choice = choose("auto", options, memory)
    chosen, engine = choice.device, choice.engine.name
    rows = tuple(row for kind in KINDS for row in _rows(kind, memory, chosen, engine))
    return DeviceTable(rows, choice.reason)


def _rows(kind: str, memory: Path | None, chosen: Device, engine: str) -> Iterator[DeviceRow]:
    """The devices of a kind; one row that says why not, where there is none."""
    why = why_absent(Device(kind))
    name = next(name for name, _ in candidates(kind))
    found: tuple[DeviceInfo, ...] = ()
    if why is None:
        try:
            finder = find_engine(name)
        except EngineError as error:
            why = f"{error.what}: {error.hint}"
        else:
            every = finder.found(memory) if isinstance(finder, DeviceFinder) else ()
            found = tuple(info for info in every if info.device.kind == kind)
            why = None if found else f"engine `{name}` sees none"
    for info in found:
        is_chosen = (info.device.kind, info.device.index or 0) == (chosen.kind, chosen.index or 0)
        yield DeviceRow(
            str(info.device),
            name,
            info.name,
            info.precisions,
            _memory_bytes() if kind == "cpu" else info.memory_bytes,
            kind not in UNTESTED and "untested" not in (info.note or ""),
            is_chosen and name == engine,
            info.note,
        )
    if why is not None:
        yield DeviceRow(kind, None, is_tested=kind not in UNTESTED, why_not=why)


def _memory_bytes() -> int | None:
    """The memory of the machine, if the system reports it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
