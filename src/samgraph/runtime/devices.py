"""Which engine and precision to use here, with a sentence that says why."""

import warnings
from dataclasses import dataclass
from pathlib import Path

from samgraph.engines import Engine, EngineOptions, find_engine
from samgraph.errors import EngineError, OptionError, SamgraphWarning
from samgraph.runtime.options import CompileOptions

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine with its options, and the reason in words."""

    engine: Engine
    options: EngineOptions
    reason: str


def choose(device: str, options: CompileOptions, memory: Path | None) -> Choice:
    """The engine for a device; `memory` is where answers about this machine are kept."""
    if device not in DEVICES:
        raise OptionError(f"there is no device `{device}`", expected=", ".join(DEVICES))
    if device == "cuda":
        return _choose_cuda(options)
    if options.precision not in ("fp32", "bf16"):
        raise OptionError(
            f"precision `{options.precision}` does not exist on the cpu",
            expected="fp32, bf16",
            hint='use device="cuda"',
        )
    name = options.engine or "openvino"
    engine = find_engine(name)
    threads = options.chosen_threads
    reason = f"{name} on the cpu, {threads} thread{'s' * (threads > 1)}"
    if name == "reference":
        if options.precision != "fp32":
            _warn("the numpy reference computes in the graph's own dtypes")
        return Choice(engine, EngineOptions("fp32", 1), "the numpy reference, one thread: slow")
    if options.precision == "fp32":
        return Choice(engine, EngineOptions("fp32", threads), f"{reason}, fp32")
    if name == "torch":
        why = "products rounded to bf16 but computed in fp32, as on a GPU and no faster"
        return Choice(engine, EngineOptions("bf16", threads), f"{reason}, bf16: {why}")
    allowed, why = _bf16_verdict(engine, memory)
    if allowed:
        return Choice(engine, EngineOptions("bf16", threads), f"{reason}, bf16: {why}")
    _warn(why)
    return Choice(engine, EngineOptions("fp32", threads), f"{reason}, fp32: {why}")


def _warn(why: str) -> None:
    warnings.warn(f"using fp32: {why}", SamgraphWarning, stacklevel=5)


def _choose_cuda(options: CompileOptions) -> Choice:
    """The torch engine, which alone runs on a GPU."""
    if options.engine not in (None, "torch"):
        raise OptionError(
            f"engine `{options.engine}` does not run on CUDA",
            expected="torch",
            hint='use device="cpu", or leave the engine to be chosen',
        )
    try:
        find_engine("torch")
    except EngineError as error:
        raise EngineError(
            "device `cuda` cannot be used here",
            got=error.got,
            hint='pip install samgraph[torch], or use device="cpu"',
        ) from error
    from samgraph.engines.torch import engine_on

    engine = engine_on("cuda")
    reason = f"torch on cuda, {options.precision}"
    return Choice(engine, EngineOptions(options.precision, 1), reason)


def _bf16_verdict(engine: Engine, memory: Path | None) -> tuple[bool, str]:
    from samgraph.engines.openvino.bf16 import bf16_verdict

    return bf16_verdict(memory, engine.version())
