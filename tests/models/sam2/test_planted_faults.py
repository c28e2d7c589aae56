"""The comparisons find every mistake that is planted in the model."""

from functools import cache

import pytest

from tests.models.sam2 import wiring
from tests.models.sam2.bench import bench_for
from tests.models.sam2.comparing import Finding, compare_all
from tests.models.sam2.components import run_components
from tests.models.sam2.faults.all_of_them import FAULTS
from tests.models.sam2.quiet_parts import quiet_bench, run_quiet
from tests.models.sam2.wiring import Wired


@cache
def wired(config: str, graph: str) -> Wired:
    """What a graph must give, from the model as it is."""
    _, bench = bench_for(config, "reference")
    if graph == "memory_encoder":
        return wiring.memory_encoder(bench)
    return wiring.memory_attention(bench, wiring.attention_inputs(bench.config, 2, 3, 2))


def worst(config: str, parts: tuple[str, ...]) -> list[Finding]:
    """The worst finding of each part."""
    golden, bench = bench_for(config, "reference")
    found = []
    for part in parts:
        kind, _, name = part.partition(":")
        if kind == "wiring":
            found.append(wired(config, name).check(bench))
        elif kind == "quiet":
            quiet, quiet_model = quiet_bench("reference")
            found.append(max(compare_all(quiet, run_quiet(quiet, quiet_model)).values()))
        else:
            named = run_components(golden, bench, (part,))
            found.append(max(compare_all(golden, named).values()))
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    for part in fault.parts:
        if part.startswith("wiring:"):
            wired(fault.config, part.removeprefix("wiring:"))

    fault.plant(monkeypatch)
    found = worst(fault.config, fault.parts)

    # Far beyond its limit, so that no fault is found by luck.
    assert all(finding.share > 5.0 for finding in found)


def test_without_a_fault_nothing_is_found() -> None:
    used = {(fault.config, part) for fault in FAULTS.values() for part in fault.parts}

    for config, part in used:
        assert all(finding.share < 1.0 for finding in worst(config, (part,)))


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 24
