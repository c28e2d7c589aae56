"""EfficientTAM against recorded numbers of its reference: every component, both sizes of input."""

from collections.abc import Iterator
from itertools import chain

import pytest

from samgraph.graph import Array
from samgraph.models.efficienttam.config import CONFIGS, NAMED
from samgraph.models.efficienttam.graphs import GRAPHS
from tests.golden.reading import Golden
from tests.models.efficienttam.parts import (
    encoder,
    image_encoder,
    memory_attention,
    rotation,
    tables,
)
from tests.models.sam2.bench import Bench
from tests.models.sam2.comparing import compare_all, recorded, wrong
from tests.models.sister_components import known, released_shapes, run_shared, sister_bench

pytestmark = [pytest.mark.shared("golden-families"), pytest.mark.timeout(900)]
EVERY = {**CONFIGS, **NAMED}
SMALL = "efficienttam_ti_512x512"


def components(golden: Golden, bench: Bench) -> Iterator[tuple[str, Array]]:
    yield from encoder(golden, bench)
    yield from run_shared(golden, bench)
    yield from known(golden, tables(golden, bench))
    yield from rotation(golden, bench)
    yield from known(golden, memory_attention(golden, bench))


@pytest.mark.parametrize("name", EVERY)
def test_a_config_has_the_released_keys_and_shapes(name: str) -> None:
    assert GRAPHS.weight_shapes(EVERY[name].smallest()) == released_shapes(name.replace("-", "_"))


def test_every_component_is_computed_alike() -> None:
    golden, bench = sister_bench(SMALL, NAMED["efficienttam-ti-512x512"], GRAPHS, "openvino")

    found = compare_all(golden, components(golden, bench))

    assert set(found) == recorded(golden)
    assert not wrong(found)


@pytest.mark.parametrize("engine", ["reference", "torch", "onnxruntime"])
def test_other_engines_agree(engine: str) -> None:
    if engine != "reference":
        pytest.importorskip(engine)
    if engine == "torch":
        pytest.importorskip("torch")
    golden, bench = sister_bench(SMALL, NAMED["efficienttam-ti-512x512"], GRAPHS, engine)
    parts = [
        image_encoder(golden, bench),
        run_shared(golden, bench, ("points", "dense", "memory_encoder")),
        known(golden, memory_attention(golden, bench, "e")),
    ]

    assert not wrong(compare_all(golden, chain(*parts)))


def test_the_wider_model_agrees_at_full_size() -> None:
    golden, bench = sister_bench("efficienttam_s", CONFIGS["efficienttam-s"], GRAPHS, "openvino")

    found = compare_all(
        golden, chain(image_encoder(golden, bench), memory_attention(golden, bench, "f"))
    )

    assert not wrong(found)
