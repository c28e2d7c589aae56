"""Every part of the model against recorded numbers of the reference, whole tensors, float32."""

import pytest

from tests.models.sam2.bench import bench_for
from tests.models.sam2.comparing import compare_all, recorded, wrong
from tests.models.sam2.components import run_components
from tests.models.sam2.quiet_parts import quiet_bench, run_quiet


@pytest.mark.parametrize("engine", ["reference", "openvino"])
@pytest.mark.parametrize("config", ["test", "test2"])
def test_every_recorded_array_is_computed_alike(config: str, engine: str) -> None:
    golden, bench = bench_for(config, engine)

    found = compare_all(golden, run_components(golden, bench))

    assert set(found) == recorded(golden)
    assert not wrong(found)


@pytest.mark.parametrize("engine", ["reference", "openvino"])
def test_every_norm_has_the_epsilon_of_the_reference(engine: str) -> None:
    golden, bench = quiet_bench(engine)

    found = compare_all(golden, run_quiet(golden, bench))

    assert set(found) == recorded(golden)
    assert not wrong(found)
