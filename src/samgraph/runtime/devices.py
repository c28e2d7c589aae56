"""The choice of engine, device and precision, with its reason in a sentence."""

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from samgraph.engines import Device, Engine, EngineOptions, find_engine, parse_device
from samgraph.engines.devices import AUTO, KINDS, UNTESTED, DeviceLike, why_absent
from samgraph.engines.protocol import candidates
from samgraph.errors import EngineError, OptionError, SamgraphWarning
from samgraph.runtime.options import CompileOptions


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine with its options, and the reason in words."""

    engine: Engine
    options: EngineOptions
    reason: str
    device: Device


def choose(device: DeviceLike, options: CompileOptions, memory: Path | None) -> Choice:
    """The engine for a device; `memory` is the folder of cached decisions about this machine.

    `auto` takes the first candidate that works; the reason says why not others.
    """
    named = parse_device(device)
    if named is not None:
        is_usual = options.engine in (None, *(name for name, _ in candidates(named.kind)))
        why = why_absent(named) if named.kind in UNTESTED and is_usual else None
        if why is not None:
            text = f"device `{named}` cannot be used here"
            raise EngineError(text, got=why, hint='use device="auto"')
        return _decide(_engine_on(named, options.engine), named, options, memory)
    skipped: list[str] = []
    for name, kind in _ways(options.engine):
        found = Device(kind)
        why = why_absent(found)
        if why is None:
            try:
                engine = find_engine(name).on(found)
            except EngineError as error:
                why = f"{error.what}, {error.got}"
            else:
                choice = _decide(engine, found, options, memory)
                return replace(choice, reason="; ".join([choice.reason, *skipped]))
        skipped.append(f"not {kind}: {why}")
    raise EngineError("no engine can be used here", got="; ".join(skipped))


@contextmanager
def loading_library(
    device: DeviceLike, options: CompileOptions, then: Callable[[Engine], None] = lambda _: None
) -> Iterator[None]:
    """Load the library of the CPU engine in a thread while the block runs, if it will be chosen.

    So a start reads its weights meanwhile. `then` is called with the engine. What goes wrong is
    left to `choose`.
    """
    thread = threading.Thread(target=_load_library, args=(device, options, then))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _load_library(
    device: DeviceLike, options: CompileOptions, then: Callable[[Engine], None]
) -> None:
    with suppress(Exception):
        named, ways = parse_device(device), _ways(options.engine)
        here = named or next(Device(kind) for _, kind in ways if why_absent(Device(kind)) is None)
        if here.kind == "cpu":
            engine = find_engine(options.engine or next(candidates("cpu"))[0])
            engine.version()
            then(engine)


def devices_here() -> str:
    """The devices of this machine, and why others are missing: for help texts."""
    absent = {kind: why_absent(Device(kind)) for kind in KINDS}
    shown = {kind: why for kind, why in absent.items() if kind not in UNTESTED or why is None}
    return ", ".join(
        [AUTO, *(f"{kind} (not here: {why})" if why else kind for kind, why in shown.items())]
    )


def _ways(engine: str | None) -> Iterable[tuple[str, str]]:
    """Engine and kind of device, the preferred first."""
    if engine is None:
        return candidates()
    return [(engine, kind) for kind in find_engine(engine).devices]


def _engine_on(device: Device, named: str | None) -> Engine:
    """The engine for a device given by the user."""
    able = [name for name, _ in candidates(device.kind)]
    name = named or able[0]
    other = None if device.kind == "cpu" else 'use device="cpu"'
    try:
        engine = find_engine(name)
    except EngineError as error:
        if other is None:
            raise
        text, why = f"device `{device}` cannot be used here", why_absent(device)
        if why is not None:  # nothing that could be installed would help
            raise EngineError(text, got=why, hint=other) from error
        raise EngineError(text, got=error.got, hint=f"{error.hint}, or {other}") from error
    if device.kind not in engine.devices:
        raise OptionError(
            f"engine `{name}` does not run on `{device}`",
            expected=", ".join(able),
            hint=f"{other}, or leave the engine to be chosen" if other else None,
        )
    return engine.on(device)


def _decide(engine: Engine, device: Device, options: CompileOptions, memory: Path | None) -> Choice:
    """The engine's decision about precision and threads."""
    able = engine.devices[device.kind]
    asked = options.asked_precision or able[0]
    wanted = EngineOptions(asked, options.chosen_threads)
    lacking = asked not in able
    if lacking:
        wanted = replace(wanted, precision="fp32")
    decision = engine.decide(wanted, memory)
    used, why = decision.options, decision.why
    if lacking:
        why = f"engine `{engine.name}` has no {asked} on `{device}`"
    if used.precision != asked:
        warnings.warn(f"using {used.precision}: {why}", SamgraphWarning, stacklevel=4)
    where = "the cpu" if device.kind == "cpu" else str(device)
    threads = f", {used.threads} thread{'s' * (used.threads > 1)}" * (device.kind == "cpu")
    reason = f"{engine.name} on {where}{threads}, {used.precision}"
    return Choice(engine, used, f"{reason}: {why}" if why else reason, device)
